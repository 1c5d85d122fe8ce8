-- Appends a node to the queue, or finds the one with this ID, and returns it with the node before it, or with the whole queue.
-- The state of a node is 0, 1 if its session is overdue, or 2 if its session is over.
CREATE OR REPLACE FUNCTION zlock.v1_create(p_session bigint, p_path text, p_label text, p_id uuid, p_data bytea,
    p_hint bigint, p_all boolean, p_ttl bigint, p_renew boolean, p_sync boolean)
RETURNS TABLE (seq bigint, label text, id text, session bigint, beat bigint, ttl bigint, state integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    the_hash bigint := hashtextextended(p_path, 0);
    the_ttl interval := p_ttl * interval '1 ms';
    number bigint;
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
    -- Until the commit: so numbers become visible in their order.
    PERFORM zlock.v1_lock_path(p_path);
    PERFORM 1 FROM zlock.void v WHERE v.id = p_id;
    IF FOUND THEN
        RAISE EXCEPTION 'the create was given up' USING ERRCODE = 'ZL004';
    END IF;
    INSERT INTO zlock.node (hash, seq, label, id, session, path, data, created)
        VALUES (the_hash, nextval('zlock.number'), p_label, p_id, p_session, p_path, p_data, clock_timestamp())
        ON CONFLICT (id) DO NOTHING RETURNING seq INTO number;
    IF NOT FOUND THEN
        SELECT n.seq INTO number FROM zlock.node n WHERE n.id = p_id AND n.session = p_session AND n.path = p_path;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'a node with this ID exists already' USING ERRCODE = 'ZL009';
        END IF;
        -- An earlier request has created it, and may not have waited for a replica. The commit of a change does.
        UPDATE zlock.node n SET created = n.created WHERE p_sync AND n.id = p_id;
    END IF;
    RETURN QUERY SELECT * FROM zlock.v1_list(p_path, p_hint,
        CASE WHEN p_all THEN 9223372036854775807 ELSE number END, CASE WHEN p_all THEN NULL ELSE 2 END);
END $$;

-- The last nodes of a queue up to a number, in descending order. Nothing is below the hint.
CREATE OR REPLACE FUNCTION zlock.v1_list(p_path text, p_hint bigint, p_up_to bigint, p_limit bigint)
RETURNS TABLE (seq bigint, label text, id text, session bigint, beat bigint, ttl bigint, state integer)
LANGUAGE sql VOLATILE AS $$
    SELECT n.seq, n.label, n.id::text, n.session, s.beat, (extract(epoch FROM s.ttl) * 1000)::bigint,
        CASE WHEN s.id IS NULL OR s.ended THEN 2
            WHEN s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp() + interval '1 s' THEN 1
            ELSE 0 END
    FROM (SELECT * FROM zlock.node i
            WHERE i.hash = hashtextextended(p_path, 0) AND i.path = p_path AND i.seq >= p_hint AND i.seq <= p_up_to
            ORDER BY i.hash DESC, i.seq DESC LIMIT p_limit) n
        LEFT JOIN zlock.session s ON s.id = n.session
    ORDER BY n.seq DESC
$$;

CREATE OR REPLACE FUNCTION zlock.v1_children(p_session bigint, p_path text, p_hint bigint, p_up_to bigint, p_limit bigint,
    p_sync boolean)
RETURNS TABLE (seq bigint, label text, id text, session bigint, beat bigint, ttl bigint, state integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Before the read: what a failover has lost must not look like a lock that is free.
    PERFORM zlock.v1_check(p_session, p_sync);
    RETURN QUERY SELECT * FROM zlock.v1_list(p_path, p_hint, p_up_to, p_limit);
END $$;

CREATE OR REPLACE FUNCTION zlock.v1_node(p_session bigint, p_path text, p_id uuid, p_sync boolean)
RETURNS TABLE (seq bigint, label text, session bigint, beat bigint, ttl bigint, state integer, version bigint, data bytea,
    created bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM zlock.v1_check(p_session, p_sync);
    RETURN QUERY SELECT n.seq, n.label, n.session, s.beat, (extract(epoch FROM s.ttl) * 1000)::bigint,
        CASE WHEN s.id IS NULL OR s.ended THEN 2
            WHEN s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp() + interval '1 s' THEN 1
            ELSE 0 END,
        n.version, n.data, (extract(epoch FROM n.created) * 1000000)::bigint
    FROM zlock.node n LEFT JOIN zlock.session s ON s.id = n.session WHERE n.id = p_id AND n.path = p_path;
END $$;

-- Deletes a node. Returns 0, 1 if there is none, or 2 if a fence protects it; and the sessions to wake. With a session to void
-- for, a create with this ID has no effect from now on.
CREATE OR REPLACE FUNCTION zlock.v1_delete(p_path text, p_id uuid, p_void bigint)
RETURNS TABLE (outcome integer, wake bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM zlock.v1_enter();
    IF p_void IS NOT NULL THEN
        PERFORM zlock.v1_share_session(p_void);
        PERFORM zlock.v1_lock_path(p_path);
        -- The creates of a session that is over are refused in any case.
        INSERT INTO zlock.void SELECT p_id, s.id FROM zlock.session s WHERE s.id = p_void AND NOT s.ended
            ON CONFLICT DO NOTHING;
    END IF;
    SELECT n.seq INTO number FROM zlock.node n WHERE n.id = p_id AND n.path = p_path FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM 1 FROM zlock.node n WHERE n.id = p_id AND n.path = p_path;
        outcome := CASE WHEN FOUND THEN 2 ELSE 1 END;
        RETURN NEXT;
        RETURN;
    END IF;
    -- A create in flight either sees that this node is gone, or is seen here.
    IF p_void IS NULL THEN
        PERFORM zlock.v1_share_path(p_path);
    END IF;
    DELETE FROM zlock.node n WHERE n.id = p_id;
    outcome := 0;
    wake := zlock.v1_behind(p_path, number);
    RETURN NEXT;
END $$;

-- Deletes an own node as `v1_delete` does. Returns 3 instead of 0 if all of the other nodes exist.
CREATE OR REPLACE FUNCTION zlock.v1_hand_over(p_session bigint, p_path text, p_id uuid, p_next text[], p_sync boolean)
RETURNS TABLE (outcome integer, wake bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    those integer;
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_share_session(p_session);
    PERFORM zlock.v1_check(p_session, p_sync);
    SELECT d.outcome, d.wake INTO outcome, wake FROM zlock.v1_delete(p_path, p_id, NULL) d;
    IF outcome = 0 THEN
        SELECT count(*) INTO those FROM (SELECT 1 FROM zlock.node n
            WHERE n.id = ANY (p_next::uuid[]) AND n.path = p_path AND n.session = p_session FOR KEY SHARE SKIP LOCKED) locked;
        IF those = cardinality(p_next) THEN
            outcome := 3;
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- Gives an own node another label, unless a later relabelling has. Returns what `v1_delete` does.
CREATE OR REPLACE FUNCTION zlock.v1_relabel(p_session bigint, p_path text, p_id uuid, p_label text, p_count bigint, p_sync boolean)
RETURNS TABLE (outcome integer, wake bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_share_session(p_session);
    PERFORM zlock.v1_check(p_session, p_sync);
    SELECT n.seq INTO number FROM zlock.node n WHERE n.id = p_id AND n.path = p_path AND n.session = p_session
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM 1 FROM zlock.node n WHERE n.id = p_id AND n.path = p_path AND n.session = p_session;
        outcome := CASE WHEN FOUND THEN 2 ELSE 1 END;
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM zlock.v1_share_path(p_path);
    -- A repeated request changes the row again, so that its commit waits for a replica.
    UPDATE zlock.node n SET label = p_label, relabelled = p_count WHERE n.id = p_id AND n.relabelled <= p_count;
    outcome := 0;
    wake := CASE WHEN FOUND THEN zlock.v1_behind(p_path, number) END;
    RETURN NEXT;
END $$;

-- Writes the data of a node. Returns its session, or null if there is no such node.
CREATE OR REPLACE FUNCTION zlock.v1_set_data(p_path text, p_id uuid, p_data bytea)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner bigint;
BEGIN
    PERFORM zlock.v1_enter();
    UPDATE zlock.node n SET data = p_data, version = n.version + 1 WHERE n.id = p_id AND n.path = p_path
        RETURNING n.session INTO owner;
    RETURN owner;
END $$;

-- Writes the data of a node that was written so many times. Returns its session, how often it was written before, and whether it
-- had this data already. No row if there is no such node.
CREATE OR REPLACE FUNCTION zlock.v1_replace_data(p_path text, p_id uuid, p_writes bigint, p_data bytea)
RETURNS TABLE (session bigint, writes bigint, had boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM zlock.v1_enter();
    RETURN QUERY SELECT n.session, n.version, n.data = p_data FROM zlock.node n WHERE n.id = p_id AND n.path = p_path
        FOR NO KEY UPDATE;
    UPDATE zlock.node n SET data = p_data, version = n.version + 1
        WHERE n.id = p_id AND n.path = p_path AND n.version = p_writes;
END $$;

-- What all watches of a client watch: nodes by their IDs (kind 0), queues (1) and values (2) by their paths. What does not
-- exist is not returned. Also the sessions in those queues that have not been renewed for half of their timeout (3).
CREATE OR REPLACE FUNCTION zlock.v1_poll(p_session bigint, p_nodes text[], p_queues text[], p_values text[], p_sync boolean)
RETURNS TABLE (kind integer, key text, label text, version bigint, session bigint, beat bigint, ttl bigint, state integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM zlock.v1_check(p_session, p_sync);
    RETURN QUERY SELECT 0, n.id::text, n.label, n.version, n.session, s.beat, (extract(epoch FROM s.ttl) * 1000)::bigint,
        CASE WHEN s.id IS NULL OR s.ended THEN 2
            WHEN s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp() + interval '1 s' THEN 1
            ELSE 0 END
        FROM zlock.node n LEFT JOIN zlock.session s ON s.id = n.session WHERE n.id = ANY (p_nodes::uuid[]);
    IF cardinality(p_queues) > 0 THEN
        RETURN QUERY SELECT 1, q.path, string_agg(n.seq || ' ' || n.label, ',' ORDER BY n.seq), 0::bigint, 0::bigint,
                0::bigint, 0::bigint, 0
            FROM unnest(p_queues) q (path)
            JOIN zlock.node n ON n.hash = hashtextextended(q.path, 0) AND n.path = q.path GROUP BY q.path;
        RETURN QUERY SELECT DISTINCT 3, '', '', 0::bigint, n.session, s.beat, (extract(epoch FROM s.ttl) * 1000)::bigint,
            CASE WHEN s.id IS NULL OR s.ended THEN 2
                WHEN s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp() + interval '1 s' THEN 1
                ELSE 0 END
            FROM unnest(p_queues) q (path)
            JOIN zlock.node n ON n.hash = hashtextextended(q.path, 0) AND n.path = q.path
            LEFT JOIN zlock.session s ON s.id = n.session
            WHERE s.id IS NULL OR s.ended OR s.renewed + s.ttl / 2 < clock_timestamp()
                OR s.renewed > clock_timestamp() + interval '1 s';
    END IF;
    IF cardinality(p_values) > 0 THEN
        RETURN QUERY SELECT 2, v.path, '', v.number, 0::bigint, 0::bigint, 0::bigint, 0
            FROM unnest(p_values) q (path)
            JOIN zlock.value v ON v.hash = hashtextextended(q.path, 0) AND v.path = q.path;
    END IF;
END $$;
