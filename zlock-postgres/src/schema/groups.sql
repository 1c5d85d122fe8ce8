-- Makes a session the owner of a member. Returns 0 with its number, 1 with the session that owns it and that session's state, 1
-- without a session if there is a value, or 2 if the join was given up. What it leaves is the receipt of a write of a value at the member's path.
CREATE OR REPLACE FUNCTION zlock.v1_join(p_session bigint, p_group text, p_name text, p_data bytea, p_replaces boolean,
    p_slot integer, p_write bigint, p_ttl bigint, p_renew boolean, p_sync boolean)
RETURNS TABLE (outcome integer, number bigint, owner bigint, state integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    the_hash bigint := hashtextextended(p_group, 0);
    the_ttl interval := p_ttl * interval '1 ms';
    receipt zlock.receipt;
    now_there zlock.member;
    next_number bigint;
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_share_session(p_session);
    PERFORM zlock.v1_check(p_session, p_sync);
    PERFORM zlock.v1_check_quiet(p_sync);
    UPDATE zlock.session s SET ttl = the_ttl, beat = s.beat + 1, renewed = clock_timestamp(), suspect = NULL
        WHERE s.id = p_session AND NOT s.ended AND (p_renew OR s.ttl <> the_ttl);
    IF NOT FOUND AND p_renew THEN
        RAISE EXCEPTION 'the session is over' USING ERRCODE = 'ZL001';
    END IF;
    PERFORM zlock.v1_lock_value(p_group || '/' || p_name);
    SELECT * INTO receipt FROM zlock.receipt r WHERE r.session = p_session AND r.slot = p_slot;
    IF receipt.write >= p_write THEN
        outcome := CASE WHEN receipt.write = p_write AND receipt.created IS NOT NULL THEN 0 ELSE 2 END;
        number := receipt.number;
        UPDATE zlock.receipt r SET write = r.write WHERE p_sync AND r.session = p_session AND r.slot = p_slot;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT * INTO now_there FROM zlock.member m WHERE m.hash = the_hash AND m.path = p_group AND m.name = p_name;
    IF now_there.session = p_session THEN
        outcome := 0;
        number := now_there.number;
        RETURN NEXT;
        RETURN;
    END IF;
    IF now_there.session IS NOT NULL AND NOT p_replaces
        AND EXISTS (SELECT 1 FROM zlock.session s WHERE s.id = now_there.session AND NOT s.ended) THEN
        outcome := 1;
        owner := now_there.session;
        state := (SELECT CASE WHEN s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp() + interval '1 s'
            THEN 1 ELSE 0 END FROM zlock.session s WHERE s.id = owner);
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1 FROM zlock.value v
        WHERE v.hash = hashtextextended(p_group || '/' || p_name, 0) AND v.path = p_group || '/' || p_name;
    IF FOUND THEN
        outcome := 1;
        RETURN NEXT;
        RETURN;
    END IF;
    next_number := nextval('zlock.number');
    DELETE FROM zlock.member m WHERE m.number = now_there.number;
    INSERT INTO zlock.member VALUES (next_number, the_hash, p_group, p_name, p_session, p_data);
    INSERT INTO zlock.receipt VALUES (p_session, p_slot, p_write, next_number, next_number)
        ON CONFLICT (session, slot) DO UPDATE
        SET write = excluded.write, created = excluded.created, number = excluded.number;
    outcome := 0;
    number := next_number;
    RETURN NEXT;
END $$;

-- Removes a member. It leaves a receipt, too, so that it does not remove a later one, however late it arrives.
CREATE OR REPLACE FUNCTION zlock.v1_leave(p_session bigint, p_group text, p_name text, p_slot integer, p_write bigint)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_share_session(p_session);
    PERFORM zlock.v1_lock_value(p_group || '/' || p_name);
    PERFORM 1 FROM zlock.receipt r WHERE r.session = p_session AND r.slot = p_slot AND r.write >= p_write;
    IF FOUND THEN
        RETURN;
    END IF;
    INSERT INTO zlock.receipt SELECT s.id, p_slot, p_write, NULL, NULL FROM zlock.session s
        WHERE s.id = p_session AND NOT s.ended
        ON CONFLICT (session, slot) DO UPDATE SET write = excluded.write, created = NULL, number = NULL;
    DELETE FROM zlock.member m WHERE m.hash = hashtextextended(p_group, 0) AND m.path = p_group AND m.name = p_name
        AND m.session = p_session;
END $$;

-- The members of groups, each with the state of its session. Those of sessions that are over are left out.
CREATE OR REPLACE FUNCTION zlock.v1_members(p_session bigint, p_groups text[], p_data boolean, p_sync boolean)
RETURNS TABLE (path text, name text, number bigint, data bytea, session bigint, beat bigint, ttl bigint, state integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM zlock.v1_check(p_session, p_sync);
    RETURN QUERY SELECT m.path, m.name, m.number, CASE WHEN p_data THEN m.data END, m.session, s.beat,
        (extract(epoch FROM s.ttl) * 1000)::bigint,
        CASE WHEN s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp() + interval '1 s' THEN 1 ELSE 0 END
        FROM unnest(p_groups) q (path)
            JOIN zlock.member m ON m.hash = hashtextextended(q.path, 0) AND m.path = q.path
            JOIN zlock.session s ON s.id = m.session AND NOT s.ended
        ORDER BY m.number;
END $$;
