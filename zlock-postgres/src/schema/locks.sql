-- For operators: the locks at a path and below it that have nodes, with the number of these, and whether the session of one of
-- them is over or overdue.
CREATE OR REPLACE FUNCTION zlock.locks(p_below text DEFAULT '')
RETURNS TABLE (path text, nodes bigint, has_doubtful boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT n.path, count(*), bool_or(s.id IS NULL OR s.ended OR s.renewed + s.ttl < clock_timestamp())
    FROM zlock.node n LEFT JOIN zlock.session s ON s.id = n.session
    WHERE n.path = p_below OR starts_with(n.path, p_below || '/')
    GROUP BY n.path ORDER BY n.path COLLATE "C"
$$;

-- For operators: the paths of the jobs below a path that seem to have a record.
CREATE OR REPLACE FUNCTION zlock.jobs(p_below text DEFAULT '')
RETURNS TABLE (path text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT left(v.path, -4) FROM zlock.value v
    WHERE starts_with(v.path, p_below || '/') AND right(v.path, 4) = '.job' AND right(v.path, 5) <> '/.job'
    ORDER BY v.path COLLATE "C"
$$;
