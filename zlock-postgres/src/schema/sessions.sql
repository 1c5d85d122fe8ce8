-- Every function runs in a transaction of its own. It needs READ COMMITTED: in other levels, a statement does not see what was
-- committed while it waited for a lock.
CREATE OR REPLACE FUNCTION zlock.v1_enter() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation level is %, and zlock needs read committed', current_setting('transaction_isolation')
            USING ERRCODE = 'ZL005',
                HINT = format('ALTER ROLE %I SET default_transaction_isolation = ''read committed''', session_user);
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- By then the client has given up. Its server process would wait on, unnoticed.
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '3s', true);
    END IF;
END $$;

-- The history of the server: its live timeline, and its system identifier, since the data may move to another cluster. The control
-- file shows the old timeline for a while after a promotion.
CREATE OR REPLACE FUNCTION zlock.v1_timeline() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    live_timeline text;
BEGIN
    IF (SELECT s.static_term FROM zlock.setting s) THEN
        RETURN 'static';
    END IF;
    live_timeline := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    RETURN live_timeline || ' ' || zlock.v1_system();
END $$;

CREATE OR REPLACE FUNCTION zlock.v1_system() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF (SELECT s.static_term FROM zlock.setting s) THEN
        RETURN 0;
    END IF;
    RETURN (SELECT c.system_identifier FROM pg_control_system() c);
END $$;

CREATE OR REPLACE FUNCTION zlock.v1_lock_path(p_path text) RETURNS void LANGUAGE sql VOLATILE AS
    $$ SELECT pg_advisory_xact_lock(2053861219, hashtext(p_path)) $$;
CREATE OR REPLACE FUNCTION zlock.v1_share_path(p_path text) RETURNS void LANGUAGE sql VOLATILE AS
    $$ SELECT pg_advisory_xact_lock_shared(2053861219, hashtext(p_path)) $$;
CREATE OR REPLACE FUNCTION zlock.v1_lock_session(p_session bigint) RETURNS void LANGUAGE sql VOLATILE AS
    $$ SELECT pg_advisory_xact_lock(2053861220, hashint8(p_session)) $$;
CREATE OR REPLACE FUNCTION zlock.v1_share_session(p_session bigint) RETURNS void LANGUAGE sql VOLATILE AS
    $$ SELECT pg_advisory_xact_lock_shared(2053861220, hashint8(p_session)) $$;

-- Refuses a session that is over, or belongs to an earlier history of the server.
CREATE OR REPLACE FUNCTION zlock.v1_check(p_session bigint, p_sync boolean) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_timeline text;
BEGIN
    SELECT s.timeline INTO found_timeline FROM zlock.session s WHERE s.id = p_session AND NOT s.ended;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session is over' USING ERRCODE = 'ZL001';
    END IF;
    IF NOT p_sync AND found_timeline <> zlock.v1_timeline() THEN
        RAISE EXCEPTION 'the session began before a failover' USING ERRCODE = 'ZL002';
    END IF;
END $$;

-- Refuses a grant while a failover may have lost what others still hold.
CREATE OR REPLACE FUNCTION zlock.v1_check_quiet(p_sync boolean) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_sync THEN
        RETURN;
    END IF;
    PERFORM 1 FROM (SELECT t.began, t.quiet FROM zlock.term t ORDER BY t.n DESC LIMIT 1) last
        WHERE clock_timestamp() < last.began + last.quiet;
    IF FOUND THEN
        RAISE EXCEPTION 'a failover may have lost what is still held: nothing is granted yet' USING ERRCODE = 'ZL007';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION zlock.v1_begin(p_session bigint, p_ttl bigint, p_rest bigint, p_sync boolean)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live_timeline text := zlock.v1_timeline();
    live_system bigint := zlock.v1_system();
    longest interval := (SELECT s.longest_ttl FROM zlock.setting s);
    last zlock.term;
BEGIN
    PERFORM zlock.v1_enter();
    IF p_ttl * interval '1 ms' > longest THEN
        RAISE EXCEPTION 'a session timeout of % ms is longer than %, the longest that the database allows', p_ttl, longest
            USING ERRCODE = 'ZL008', HINT = 'UPDATE zlock.setting SET longest_ttl = ..';
    END IF;
    SELECT * INTO last FROM zlock.term t ORDER BY t.n DESC LIMIT 1;
    IF NOT FOUND OR (last.system, last.timeline) <> (live_system, live_timeline) THEN
        PERFORM pg_advisory_xact_lock(2053861221, 0);
        SELECT * INTO last FROM zlock.term t ORDER BY t.n DESC LIMIT 1;
        IF NOT FOUND OR (last.system, last.timeline) <> (live_system, live_timeline) THEN
            INSERT INTO zlock.term VALUES (coalesce(last.n, 0) + 1, live_system, live_timeline, clock_timestamp(),
                CASE WHEN last.n IS NULL THEN interval '0' ELSE longest END);
            -- Numbers that were given out in a history that is lost are never given out again.
            PERFORM setval('zlock.number', greatest(nextval('zlock.number'),
                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint));
        END IF;
    END IF;
    INSERT INTO zlock.session (id, timeline, ttl, renewed)
        VALUES (p_session, live_timeline, p_rest * interval '1 ms', clock_timestamp())
        ON CONFLICT DO NOTHING;
END $$;

-- Keeps a session alive, and never brings one back. Returns 0, 1 if it is over, or 2 if it began before a failover; and which of
-- the known nodes are there: the IDs of places, and the paths of members. A session at rest owns none, and lives longer; whether it
-- rests is returned. Without sequential scans, since a plan that is made while the table is small is kept.
CREATE OR REPLACE FUNCTION zlock.v1_beat(p_session bigint, p_ttl bigint, p_rest bigint, p_sync boolean, p_known text[])
RETURNS TABLE (outcome integer, nodes text[], rests boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
DECLARE
    live_timeline text := zlock.v1_timeline();
    timeline_now text;
BEGIN
    PERFORM zlock.v1_enter();
    -- No create is in flight. A heartbeat does not wait for one.
    rests := p_rest IS NOT NULL AND pg_try_advisory_xact_lock(2053861220, hashint8(p_session));
    IF rests THEN
        rests := NOT EXISTS (SELECT 1 FROM zlock.node n WHERE n.session = p_session)
            AND NOT EXISTS (SELECT 1 FROM zlock.member m WHERE m.session = p_session);
    END IF;
    UPDATE zlock.session s SET beat = s.beat + 1, renewed = clock_timestamp(), suspect = NULL,
            ttl = CASE WHEN rests THEN p_rest ELSE p_ttl END * interval '1 ms',
            timeline = CASE WHEN p_sync THEN live_timeline ELSE s.timeline END
        WHERE s.id = p_session AND NOT s.ended
        RETURNING s.timeline INTO timeline_now;
    outcome := CASE WHEN NOT FOUND THEN 1 WHEN timeline_now <> live_timeline THEN 2 ELSE 0 END;
    -- By their IDs: the index of sessions also has the nodes that were deleted while an old snapshot is open.
    nodes := ARRAY(SELECT n.id::text FROM zlock.node n
            WHERE n.id = ANY (ARRAY(SELECT k::uuid FROM unnest(p_known) k WHERE k NOT LIKE '/%')) AND n.session + 0 = p_session
        UNION ALL SELECT m.path || '/' || m.name FROM zlock.member m WHERE m.session = p_session);
    RETURN NEXT;
END $$;

-- Ends a session. No create of it takes effect from now on; `v1_clean` removes what it owns.
CREATE OR REPLACE FUNCTION zlock.v1_end(p_session bigint)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_lock_session(p_session);
    UPDATE zlock.session s SET ended = true WHERE s.id = p_session AND NOT s.ended;
END $$;

-- Ends a session of which the caller has seen no other beat for the session's timeout, by its own monotonic clock.
-- Returns whether the session is over.
CREATE OR REPLACE FUNCTION zlock.v1_expire(p_session bigint, p_beat bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_lock_session(p_session);
    UPDATE zlock.session s SET ended = true WHERE s.id = p_session AND s.beat = p_beat AND NOT s.ended;
    RETURN NOT EXISTS (SELECT 1 FROM zlock.session s WHERE s.id = p_session AND NOT s.ended);
END $$;

-- Suspects a session that is overdue by the server's clock, or ends it if it was suspected for its timeout. Each beat clears
-- the suspicion, so no step of that clock ends a session that is kept alive. Returns whether the session is over.
CREATE OR REPLACE FUNCTION zlock.v1_suspect(p_session bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_lock_session(p_session);
    UPDATE zlock.session s SET ended = true
        WHERE s.id = p_session AND NOT s.ended AND s.suspect + s.ttl < clock_timestamp();
    -- A mark from the future is of a clock that has been set back since.
    UPDATE zlock.session s SET suspect = clock_timestamp()
        WHERE s.id = p_session AND NOT s.ended AND (s.suspect IS NULL OR s.suspect > clock_timestamp())
            AND (s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp());
    RETURN NOT EXISTS (SELECT 1 FROM zlock.session s WHERE s.id = p_session AND NOT s.ended);
END $$;

-- Returns sessions that may be dead, some at a time, without those that are suspected and may not be ended yet.
CREATE OR REPLACE FUNCTION zlock.v1_overdue()
RETURNS SETOF bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.id FROM zlock.session s
        WHERE s.ended OR (s.renewed + s.ttl < clock_timestamp() OR s.renewed > clock_timestamp() + interval '1 s')
            AND (s.suspect IS NULL OR s.suspect > clock_timestamp() OR s.suspect + s.ttl < clock_timestamp())
        LIMIT 100
$$;

-- The sessions of the nodes behind a number, up to the first node that lets no other hold beside it.
CREATE OR REPLACE FUNCTION zlock.v1_behind(p_path text, p_seq bigint) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    sessions bigint[] := '{}';
    node record;
BEGIN
    FOR node IN SELECT n.session, n.label FROM zlock.node n
        WHERE n.hash = hashtextextended(p_path, 0) AND n.path = p_path AND n.seq > p_seq ORDER BY n.seq
    LOOP
        IF node.session <> ALL (sessions) THEN
            sessions := sessions || node.session;
        END IF;
        EXIT WHEN node.label <> 'read' AND node.label NOT LIKE 'granted %';
    END LOOP;
    RETURN sessions;
END $$;

-- Removes the nodes of an ended session from one queue, and returns each with the sessions to wake. Without any left, removes
-- the rest, and returns nothing. Nodes that a fence protects stay until its transaction ends: then the node is null.
CREATE OR REPLACE FUNCTION zlock.v1_clean(p_session bigint)
RETURNS TABLE (node text, wake bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    the_path text;
    gone record;
BEGIN
    PERFORM zlock.v1_enter();
    PERFORM zlock.v1_lock_session(p_session);
    -- A session whose row is missing is over, too: an operator may have deleted it.
    PERFORM 1 FROM zlock.session s WHERE s.id = p_session AND NOT s.ended;
    IF FOUND THEN
        RETURN;
    END IF;
    DELETE FROM zlock.member m WHERE m.session = p_session;
    SELECT n.path INTO the_path FROM zlock.node n WHERE n.session = p_session LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM 1 FROM zlock.node n WHERE n.session = p_session;
        IF FOUND THEN
            RETURN NEXT;
        ELSE
            DELETE FROM zlock.void v WHERE v.session = p_session;
            DELETE FROM zlock.receipt r WHERE r.session = p_session;
            DELETE FROM zlock.session s WHERE s.id = p_session;
        END IF;
        RETURN;
    END IF;
    PERFORM zlock.v1_share_path(the_path);
    FOR gone IN DELETE FROM zlock.node d WHERE d.id IN
            (SELECT n.id FROM zlock.node n WHERE n.session = p_session AND n.path = the_path FOR UPDATE SKIP LOCKED)
        RETURNING d.id, d.seq
    LOOP
        node := gone.id::text;
        wake := zlock.v1_behind(the_path, gone.seq);
        RETURN NEXT;
    END LOOP;
END $$;
