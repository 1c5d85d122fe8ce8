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
-- this ID, or of a whole scope. What a large scope has is counted by one of its watchers for all, several times a second: a mark that
-- differs from the last count is compared with the scope itself.
CREATE OR REPLACE FUNCTION zlock.v2_changed(p_session bigint, p_id bytea[], p_scope bytea[], p_path bytea[], p_count bigint[], p_changed bigint[])
RETURNS TABLE (incarnation bigint, changed bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint; large CONSTANT bigint := 100; mark record; there record; differs bigint[] := '{}';
BEGIN
    {{enter}}
    {{check}}
    FOR mark IN SELECT u.* FROM unnest(p_scope, p_path, p_count, p_changed) WITH ORDINALITY u (scope, path, count, changed, n)
        WHERE u.count > large LOOP
        PERFORM FROM zlock.tally t WHERE t.scope = mark.scope AND t.path = mark.path AND t.incarnation = live AND t.count = mark.count
            AND t.changed = mark.changed AND clock_timestamp() - t.counted BETWEEN interval '0 s' AND interval '200 ms';
        CONTINUE WHEN FOUND;
        SELECT count(*) AS count, coalesce(max(e.changed), 0) AS changed, clock_timestamp() AS counted INTO there
            FROM zlock.entry e WHERE e.scope = mark.scope AND e.path = mark.path;
        IF (there.count, there.changed) <> (mark.count, mark.changed) THEN
            differs := differs || mark.n;
        END IF;
        UPDATE zlock.tally t SET path = mark.path, incarnation = live, count = there.count, changed = there.changed, counted = there.counted
            WHERE t.scope = (SELECT x.scope FROM zlock.tally x WHERE x.scope = mark.scope FOR UPDATE SKIP LOCKED);
        IF NOT FOUND THEN
            PERFORM FROM zlock.tally t WHERE t.scope = mark.scope;
            IF NOT FOUND THEN
                INSERT INTO zlock.tally VALUES (mark.scope, mark.path, live, there.count, there.changed, there.counted) ON CONFLICT DO NOTHING;
            END IF;
        END IF;
    END LOOP;
    RETURN QUERY SELECT live, differs || ARRAY(
        SELECT m.n FROM unnest(p_id, p_scope, p_path, p_count, p_changed) WITH ORDINALITY m (id, scope, path, count, changed, n)
        WHERE CASE WHEN m.id IS NOT NULL
            THEN m.changed <> coalesce((SELECT e.changed FROM zlock.entry e WHERE e.id = m.id AND e.path = m.path), 0)
            WHEN m.count > large THEN false
            ELSE (SELECT count(*) <> m.count OR coalesce(max(e.changed), 0) <> m.changed FROM zlock.entry e
                WHERE e.scope = m.scope AND e.path = m.path) END);
END $$;
