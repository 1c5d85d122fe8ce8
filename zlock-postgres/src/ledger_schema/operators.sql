-- A path as a text. In a database of another encoding, what is not ASCII is escaped.
CREATE OR REPLACE FUNCTION zlock.v2_text(p_path bytea) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN getdatabaseencoding() = 'UTF8' THEN convert_from(p_path, 'UTF8') ELSE encode(p_path, 'escape') END;
END $$;

-- For operators: the locks at a path and below it that have nodes, with the number of these, and whether the session of one of
-- them is over or overdue.
CREATE OR REPLACE FUNCTION zlock.locks(p_below text DEFAULT '')
RETURNS TABLE (path text, nodes bigint, has_doubtful boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    below bytea := convert_to(p_below, 'UTF8');
BEGIN
    RETURN QUERY SELECT zlock.v2_text(e.path), count(*), bool_or(b.session IS NULL OR b.renewed + b.timeout * interval '1 ms' < clock_timestamp())
        FROM zlock.entry e LEFT JOIN zlock.beat b ON b.session = e.session
        WHERE e.kind = 0 AND (e.path = below OR substr(e.path, 1, length(below) + 1) = below || '/')
        GROUP BY e.path ORDER BY e.path;
END $$;

-- For operators: the paths of the jobs below a path that seem to have a record.
CREATE OR REPLACE FUNCTION zlock.jobs(p_below text DEFAULT '')
RETURNS TABLE (path text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    below bytea := convert_to(p_below || '/', 'UTF8');
BEGIN
    RETURN QUERY SELECT zlock.v2_text(substr(e.path, 1, length(e.path) - 4)) FROM zlock.entry e
        WHERE e.kind = 2 AND substr(e.path, 1, length(below)) = below AND right(encode(e.path, 'escape'), 4) = '.job'
            AND right(encode(e.path, 'escape'), 5) <> '/.job'
        ORDER BY e.path;
END $$;
