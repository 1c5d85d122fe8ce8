-- For operators: the locks at a path and below it that have nodes, with the number of these, and whether the session of one of
-- them is over or overdue.
CREATE PROCEDURE zlock_locks(IN p_below VARBINARY(4096)) SQL SECURITY DEFINER
BEGIN
    SELECT e.path, COUNT(*), MAX(b.session IS NULL OR b.renewed + b.timeout * 1000 < {{now}})
        FROM zlock_entry e LEFT JOIN zlock_beat b ON b.session = e.session
        WHERE e.kind = 0 AND (e.path = p_below OR LEFT(e.path, LENGTH(p_below) + 1) = CONCAT(p_below, '/'))
        GROUP BY e.path ORDER BY e.path;
END
//
-- For operators: the paths of the jobs below a path that seem to have a record.
CREATE PROCEDURE zlock_jobs(IN p_below VARBINARY(4096)) SQL SECURITY DEFINER
BEGIN
    SELECT LEFT(e.path, LENGTH(e.path) - 4) FROM zlock_entry e
        WHERE e.kind = 2 AND LEFT(e.path, LENGTH(p_below) + 1) = CONCAT(p_below, '/') AND RIGHT(e.path, 4) = '.job' AND RIGHT(e.path, 5) <> '/.job'
        ORDER BY e.path;
END
//
