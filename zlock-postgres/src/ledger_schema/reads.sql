-- The entries of a scope: the one with this ID, or the last ones between two numbers.
CREATE OR REPLACE FUNCTION zlock.v2_read(p_session bigint, p_id bytea, p_scope bytea, p_path bytea, p_floor bigint, p_up_to bigint,
    p_limit bigint, p_data boolean)
RETURNS TABLE (o_key bytea, o_created bigint, o_changed bigint, o_session bigint, o_label text, o_writes bigint, o_made timestamptz,
    o_data bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint;
BEGIN
    {{enter}}
    -- Before the read: what was lost with the history must not look like a lock that is free.
    {{check}}
    IF p_id IS NOT NULL THEN
        RETURN QUERY SELECT e.key, e.created, e.changed, e.session, e.label, e.writes, e.made, CASE WHEN p_data THEN e.data ELSE '' END
            FROM zlock.entry e WHERE e.id = p_id AND e.path = p_path;
    ELSE
        RETURN QUERY SELECT e.key, e.created, e.changed, e.session, e.label, e.writes, e.made, CASE WHEN p_data THEN e.data ELSE '' END
            FROM zlock.entry e WHERE e.scope = p_scope AND e.path = p_path AND e.created >= p_floor AND e.created <= p_up_to
            ORDER BY e.scope DESC, e.created DESC LIMIT p_limit;
    END IF;
END $$;

-- Returns the live incarnation, and the places in the arrays of those marks that differ from what is there. A mark is of an entry with
-- this ID, or of a whole scope.
CREATE OR REPLACE FUNCTION zlock.v2_changed(p_session bigint, p_id bytea[], p_scope bytea[], p_path bytea[], p_count bigint[], p_changed bigint[])
RETURNS TABLE (incarnation bigint, changed bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint;
BEGIN
    {{enter}}
    {{check}}
    RETURN QUERY SELECT live, ARRAY(
        SELECT m.n FROM unnest(p_id, p_scope, p_path, p_count, p_changed) WITH ORDINALITY m (id, scope, path, count, changed, n)
        WHERE CASE WHEN m.id IS NOT NULL
            THEN m.changed <> coalesce((SELECT e.changed FROM zlock.entry e WHERE e.id = m.id AND e.path = m.path), 0)
            ELSE (SELECT count(*) <> m.count OR coalesce(max(e.changed), 0) <> m.changed FROM zlock.entry e
                WHERE e.scope = m.scope AND e.path = m.path) END);
END $$;
