-- Values have locks of their own, which are taken before those of queues.
CREATE OR REPLACE FUNCTION zlock.v1_lock_value(p_path text) RETURNS void LANGUAGE sql VOLATILE AS
    $$ SELECT pg_advisory_xact_lock(2053861223, hashtext(p_path)) $$;

-- Writes a value. Returns 0 with its version, 1 with what is there instead of what was expected, 2 if the guard is gone, 3 if the
-- write was given up, 4 if a fence protects the guard, or 5 if the path is that of a member. A write that releases the guard (1) deletes it in the same transaction, and
-- returns the sessions to wake. It also voids the guard's create (2).
CREATE OR REPLACE FUNCTION zlock.v1_write_value(p_session bigint, p_path text, p_slot integer, p_write bigint,
    p_created bigint, p_number bigint, p_data bytea, p_guard_path text, p_guard uuid, p_guard_seq bigint,
    p_releases integer, p_sync boolean)
RETURNS TABLE (outcome integer, created bigint, number bigint, data bytea, wake bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    the_hash bigint := hashtextextended(p_path, 0);
    the_name text := substring(p_path FROM '[^/]*$');
    the_group text := left(p_path, -1 - length(substring(p_path FROM '[^/]*$')));
    receipt zlock.receipt;
    now_there zlock.value;
    guarded boolean := p_guard IS NULL;
    next_number bigint;
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_share_session(p_session);
    PERFORM zlock.v1_check(p_session, p_sync);
    -- Before the value is locked: no function waits for a row while it has one.
    IF p_releases > 0 THEN
        PERFORM 1 FROM zlock.node n WHERE n.id = p_guard AND n.path = p_guard_path FOR UPDATE SKIP LOCKED;
        guarded := FOUND;
    ELSIF NOT guarded THEN
        PERFORM 1 FROM zlock.node n WHERE n.id = p_guard AND n.path = p_guard_path FOR KEY SHARE;
        guarded := FOUND;
    END IF;
    PERFORM zlock.v1_lock_value(p_path);
    SELECT * INTO receipt FROM zlock.receipt r WHERE r.session = p_session AND r.slot = p_slot;
    IF receipt.write >= p_write THEN
        outcome := CASE WHEN receipt.write = p_write AND receipt.created IS NOT NULL THEN 0 ELSE 3 END;
        created := receipt.created;
        number := receipt.number;
        -- An earlier request has written it, and may not have waited for a replica. The commit of a change does.
        UPDATE zlock.receipt r SET write = r.write WHERE p_sync AND r.session = p_session AND r.slot = p_slot;
        wake := CASE WHEN p_releases > 0 THEN zlock.v1_behind(p_guard_path, p_guard_seq) END;
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT guarded THEN
        PERFORM 1 FROM zlock.node n WHERE n.id = p_guard AND n.path = p_guard_path;
        outcome := CASE WHEN FOUND THEN 4 ELSE 2 END;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT * INTO now_there FROM zlock.value v WHERE v.hash = the_hash AND v.path = p_path;
    IF (now_there.created, now_there.number) IS DISTINCT FROM (p_created, p_number) THEN
        outcome := 1;
        created := now_there.created;
        number := now_there.number;
        data := now_there.data;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_created IS NULL AND EXISTS (SELECT 1 FROM zlock.member m JOIN zlock.session s ON s.id = m.session AND NOT s.ended
        WHERE m.hash = hashtextextended(the_group, 0) AND m.path = the_group AND m.name = the_name) THEN
        outcome := 5;
        RETURN NEXT;
        RETURN;
    END IF;
    next_number := nextval('zlock.number');
    number := next_number;
    IF p_created IS NULL THEN
        created := next_number;
        INSERT INTO zlock.value (created, hash, path, data, number) VALUES (next_number, the_hash, p_path, p_data, next_number);
    ELSE
        created := p_created;
        UPDATE zlock.value v SET data = p_data, number = next_number WHERE v.created = p_created;
    END IF;
    INSERT INTO zlock.receipt VALUES (p_session, p_slot, p_write, coalesce(p_created, next_number), next_number)
        ON CONFLICT (session, slot) DO UPDATE
        SET write = excluded.write, created = excluded.created, number = excluded.number;
    IF p_releases > 0 THEN
        -- A void keeps creates out, so it needs the lock that they take.
        IF p_releases = 2 THEN
            PERFORM zlock.v1_lock_path(p_guard_path);
            INSERT INTO zlock.void VALUES (p_guard, p_session) ON CONFLICT DO NOTHING;
        ELSE
            PERFORM zlock.v1_share_path(p_guard_path);
        END IF;
        DELETE FROM zlock.node n WHERE n.id = p_guard;
        wake := zlock.v1_behind(p_guard_path, p_guard_seq);
    END IF;
    outcome := 0;
    RETURN NEXT;
END $$;

-- Keeps an abandoned write from taking effect from now on.
CREATE OR REPLACE FUNCTION zlock.v1_void_write(p_session bigint, p_path text, p_slot integer, p_write bigint)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_share_session(p_session);
    PERFORM zlock.v1_lock_value(p_path);
    INSERT INTO zlock.receipt SELECT s.id, p_slot, p_write, NULL, NULL FROM zlock.session s
        WHERE s.id = p_session AND NOT s.ended
        ON CONFLICT (session, slot) DO UPDATE SET write = excluded.write, created = NULL, number = NULL
        WHERE zlock.receipt.write < excluded.write;
END $$;

CREATE OR REPLACE FUNCTION zlock.v1_value(p_path text)
RETURNS TABLE (created bigint, number bigint, data bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT v.created, v.number, v.data FROM zlock.value v WHERE v.hash = hashtextextended(p_path, 0) AND v.path = p_path
$$;
