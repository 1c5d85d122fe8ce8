-- Returns the class of the store. One that is to be found out becomes lossy for good with the first reason.
CREATE OR REPLACE FUNCTION zlock.v2_class() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    g zlock.setting;
    flushes boolean := current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean;
    why text;
BEGIN
    SELECT * INTO g FROM zlock.setting;
    IF g.class IN ('one-server', 'sync') AND NOT flushes THEN
        RAISE EXCEPTION 'the store is of the class %, and the server has fsync or full_page_writes off', g.class
            USING ERRCODE = 'ZL013';
    END IF;
    IF g.class <> 'auto' THEN
        RETURN g.class;
    END IF;
    IF g.reason IS NOT NULL THEN
        RETURN 'lossy';
    END IF;
    why := CASE
        WHEN NOT flushes THEN 'the server has fsync or full_page_writes off'
        WHEN left(pg_walfile_name(pg_current_wal_lsn()), 8) <> g.timeline THEN 'the timeline is not that of the install'
        WHEN EXISTS (SELECT FROM pg_stat_get_wal_senders()) THEN 'a replica has been connected'
        WHEN EXISTS (SELECT FROM pg_get_replication_slots() s WHERE s.slot_type = 'physical') THEN 'there is a slot for a replica'
    END;
    IF why IS NULL THEN
        RETURN 'one-server';
    END IF;
    UPDATE zlock.setting SET reason = why
        WHERE one = (SELECT s.one FROM zlock.setting s WHERE s.reason IS NULL FOR UPDATE SKIP LOCKED);
    RETURN 'lossy';
END $$;

-- Begins the live incarnation, unless it has begun, and returns it. It commits before any session of it exists. Nothing in its
-- transaction may fail after it: no rollback takes back what it does to the sequence.
CREATE OR REPLACE FUNCTION zlock.v2_incarnation() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    g zlock.setting; last zlock.incarnation; live zlock.incarnation; is_lossy boolean;
BEGIN
    SELECT {{live}} INTO live.id FROM zlock.life c;
    PERFORM FROM zlock.incarnation i WHERE i.id = live.id;
    IF FOUND THEN
        RETURN live.id;
    END IF;
    SELECT * INTO g FROM zlock.setting FOR UPDATE;
    -- Here a crash has emptied it.
    INSERT INTO zlock.life (number, restored) VALUES ({{random}}, g.restored) ON CONFLICT DO NOTHING;
    SELECT {{live}} INTO live.id FROM zlock.life c;
    PERFORM FROM zlock.incarnation i WHERE i.id = live.id;
    IF FOUND THEN
        RETURN live.id;
    END IF;
    SELECT * INTO last FROM zlock.incarnation i ORDER BY i.n DESC LIMIT 1;
    SELECT c.system_identifier INTO live.system FROM pg_control_system() c;
    live.timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    live.started := pg_postmaster_start_time();
    live.restored := g.restored;
    live.n := last.n + 1;
    IF live.system <> g.system THEN
        UPDATE zlock.setting SET reason = 'the system identifier is not that of the install' WHERE class = 'auto' AND reason IS NULL;
    END IF;
    is_lossy := live.restored <> last.restored OR live.system <> last.system OR CASE zlock.v2_class()
        WHEN 'sync' THEN false
        WHEN 'one-server' THEN live.timeline <> last.timeline
        -- A number that a crash has taken away is no reason by itself.
        ELSE live.timeline <> last.timeline OR live.started <> last.started
    END;
    live.era := last.era + is_lossy::integer;
    -- In a store that nobody has used, on the server of the install, nobody has lost anything.
    live.is_over := NOT g.used AND live.system = g.system AND live.timeline = g.timeline OR last.is_over AND NOT is_lossy;
    live.watched := CASE WHEN is_lossy THEN 0 ELSE last.watched END;
    INSERT INTO zlock.incarnation VALUES (live.*);
    UPDATE zlock.life SET grants = CASE WHEN live.is_over THEN live.id END;
    IF is_lossy THEN
        -- Above all that was given out in a lost part of the history, and below the clock by the end of quiet time: so it is not lifted
        -- again before anything was granted.
        PERFORM setval('zlock.number', greatest({{micros}},
            q.last_value + CASE WHEN last.is_over THEN (extract(epoch FROM g.longest) * 500000)::bigint ELSE 0 END)) FROM zlock.number q;
    END IF;
    RETURN live.id;
END $$;

-- What a client needs to know of the store before its first request.
CREATE OR REPLACE FUNCTION zlock.v2_salt() RETURNS bytea
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    {{enter}}
    PERFORM zlock.v2_incarnation();
    RETURN (SELECT g.salt FROM zlock.setting g);
END $$;

-- Returns the settings of the store, and its history.
CREATE OR REPLACE FUNCTION zlock.v2_setup()
RETURNS TABLE (incarnation bigint, watched bigint, quiet bigint, number bigint, "position" bigint, class text, is_lossy boolean,
    reason text, longest bigint, overlap bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint;
BEGIN
    {{enter}}
    live := zlock.v2_incarnation();
    RETURN QUERY SELECT h.*, s.class, s.class = 'lossy' OR s.class = 'auto' AND s.reason IS NOT NULL, s.reason,
        (extract(epoch FROM s.longest) * 1000)::bigint, (extract(epoch FROM s.overlap) * 1000)::bigint
        FROM zlock.setting s, ({{history}}) h;
END $$;

CREATE OR REPLACE FUNCTION zlock.v2_set_class(p_class text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    {{enter}}
    UPDATE zlock.setting SET class = p_class, reason = NULL;
    PERFORM zlock.v2_class();
END $$;

-- Makes the live incarnation another one, after tables were put back under a running server: all sessions are over, and nothing is granted
-- for a while. Without an expected incarnation, in any case.
CREATE OR REPLACE FUNCTION zlock.restored(p_incarnation bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint;
BEGIN
    {{enter}}
    -- Waits for the transactions of sessions. Those that follow find another incarnation.
    LOCK TABLE zlock.lane IN EXCLUSIVE MODE;
    live := zlock.v2_incarnation();
    IF p_incarnation <> live THEN
        RETURN;
    END IF;
    UPDATE zlock.setting SET restored = {{random}};
    UPDATE zlock.life c SET restored = g.restored FROM zlock.setting g;
END $$;
