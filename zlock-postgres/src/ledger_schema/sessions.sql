-- Removes the rows of a session that is over, without what it owns.
CREATE OR REPLACE FUNCTION zlock.v2_forget(p_session bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM zlock.lane l WHERE l.session = p_session;
    DELETE FROM zlock.beat b WHERE b.session = p_session;
    DELETE FROM zlock.watched w WHERE w.session = p_session;
    DELETE FROM zlock.receipt r WHERE r.session = p_session;
    DELETE FROM zlock.session s WHERE s.id = p_session;
END $$;

-- Deletes entries, and notifies those who wait behind them.
CREATE OR REPLACE FUNCTION zlock.v2_remove(p_ids bytea[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    scopes bytea[]; numbers bigint[]; payloads text[];
BEGIN
    WITH gone AS (DELETE FROM zlock.entry e WHERE e.id = ANY (p_ids) RETURNING *)
        SELECT array_agg(g.scope), array_agg(g.created), array_agg({{payload}})
        INTO scopes, numbers, payloads FROM gone g WHERE g.kind = 0;
    PERFORM zlock.v2_wake(0, scopes, NULL, numbers, payloads, NULL, NULL);
END $$;

-- Begins a session. Returns the history, as a heartbeat does.
CREATE OR REPLACE FUNCTION zlock.v2_begin(p_session bigint, p_timeout bigint, p_rest bigint, p_class text)
RETURNS TABLE (incarnation bigint, watched bigint, quiet bigint, number bigint, "position" bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; the_class text; the_longest interval;
BEGIN
    {{enter}}
    the_class := zlock.v2_class();
    IF p_class <> the_class THEN
        RAISE EXCEPTION 'the client relies on the class %, and the store is of the class %', p_class, the_class USING ERRCODE = 'ZL013',
            HINT = 'change the option replication of the client, or the class of the store if all its servers are of another one';
    END IF;
    SELECT g.longest INTO the_longest FROM zlock.setting g;
    IF p_timeout * interval '1 ms' > the_longest THEN
        RAISE EXCEPTION 'the session timeout of % ms is above the longest, which is %', p_timeout, the_longest USING ERRCODE = 'ZL008';
    END IF;
    -- After all that may fail.
    live := zlock.v2_incarnation();
    INSERT INTO zlock.session (id, incarnation, timeout) VALUES (p_session, live, p_timeout);
    INSERT INTO zlock.beat (session, beat, timeout, renewed) VALUES (p_session, 0, p_rest, clock_timestamp());
    INSERT INTO zlock.lane (session, wire, number) VALUES (p_session, 0, 0), (p_session, 1, 0);
    UPDATE zlock.setting SET used = true WHERE NOT used;
    RETURN QUERY {{history}};
END $$;

-- Counts a heartbeat, and adds to the watched time of the incarnation. Returns the history, the incarnation of the session, whether it
-- owns each of these entries, and whether the time was added.
CREATE OR REPLACE FUNCTION zlock.v2_beat(p_session bigint, p_beat bigint, p_timeout bigint, p_known bytea[],
    p_incarnation bigint, p_watched bigint, p_span bigint)
RETURNS TABLE (incarnation bigint, watched bigint, quiet bigint, number bigint, "position" bigint, swept bigint, "exists" boolean[],
    added boolean, owns boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint; done boolean;
BEGIN
    {{enter}}
    {{check}}
    UPDATE zlock.beat b SET beat = p_beat, timeout = p_timeout, renewed = clock_timestamp() WHERE b.session = p_session AND b.beat < p_beat;
    IF FOUND AND p_span > 0 THEN
        -- Another client that writes it now counts the same time.
        UPDATE zlock.incarnation i SET watched = i.watched + p_span, is_over = i.watched + p_span >= {{quiet}} FROM zlock.setting g
            WHERE i.id = (SELECT x.id FROM zlock.incarnation x WHERE x.id = live AND x.id = p_incarnation AND x.watched = p_watched
                AND NOT x.is_over FOR UPDATE SKIP LOCKED)
            RETURNING i.is_over INTO done;
        IF done THEN
            UPDATE zlock.life SET grants = live;
        END IF;
    ELSIF NOT EXISTS (SELECT FROM zlock.beat b WHERE b.session = p_session) THEN
        {{over}}
    END IF;
    -- Now and then, since a replica may come at any time.
    IF random() < 0.03 THEN
        PERFORM zlock.v2_class() FROM zlock.setting g WHERE g.class = 'auto';
    END IF;
    RETURN QUERY SELECT h.*, own, ARRAY(
        -- By their IDs: the index of sessions also has what was deleted while an old snapshot is open. EXISTS may be planned as one scan of
        -- all entries.
        SELECT (SELECT count(*) > 0 FROM zlock.entry e WHERE e.id = k.id AND e.session + 0 = p_session)
        FROM unnest(p_known) WITH ORDINALITY k (id, n) ORDER BY k.n), done IS NOT NULL,
        p_timeout > (SELECT s.timeout FROM zlock.session s WHERE s.id = p_session)
            AND (SELECT count(*) > 0 FROM (SELECT FROM zlock.entry e WHERE e.session = p_session LIMIT 1) x)
        FROM ({{history}}) h;
END $$;

-- Returns the keys of the nodes that a session owns, and the live incarnation.
CREATE OR REPLACE FUNCTION zlock.v2_nodes(p_session bigint)
RETURNS TABLE (incarnation bigint, keys bytea[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint;
BEGIN
    {{enter}}
    {{check}}
    RETURN QUERY SELECT live, ARRAY(SELECT e.key FROM zlock.entry e WHERE e.session = p_session AND e.kind = 0);
END $$;

-- Deletes nodes of a session, and writes the live incarnation into its row. Returns false if that is another one than expected.
CREATE OR REPLACE FUNCTION zlock.v2_sweep(p_session bigint, p_incarnation bigint, p_keys bytea[])
RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint; gone bytea[];
BEGIN
    {{enter}}
    {{check}}
    IF live <> p_incarnation THEN
        RETURN false;
    END IF;
    gone := ARRAY(SELECT e.id FROM zlock.entry e WHERE e.session = p_session AND e.kind = 0 AND e.key = ANY (p_keys)
        FOR UPDATE SKIP LOCKED);
    PERFORM FROM zlock.entry e WHERE e.session = p_session AND e.kind = 0 AND e.key = ANY (p_keys) AND e.id <> ALL (gone);
    IF FOUND THEN
        RAISE EXCEPTION 'an open transaction protects a node' USING ERRCODE = '55P03';
    END IF;
    PERFORM zlock.v2_remove(gone);
    UPDATE zlock.session s SET incarnation = live WHERE s.id = p_session;
    IF NOT FOUND THEN
        {{over}}
    END IF;
    RETURN true;
END $$;

-- Returns those of these sessions that are not over.
CREATE OR REPLACE FUNCTION zlock.v2_look(p_sessions bigint[])
RETURNS TABLE (session bigint, beat bigint, timeout bigint, watched bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint;
BEGIN
    {{enter}}
    live := zlock.v2_incarnation();
    -- One that has come to own something while it rests counts from then on.
    RETURN QUERY SELECT b.session, b.beat, CASE WHEN o.wakes THEN s.timeout ELSE b.timeout END, CASE WHEN o.wakes THEN 0 ELSE coalesce(w.watched, 0) END
        FROM unnest(p_sessions) q (id) JOIN zlock.session s ON s.id = q.id JOIN zlock.beat b ON b.session = s.id
            JOIN zlock.incarnation i ON i.id = s.incarnation JOIN zlock.incarnation l ON l.id = live AND l.era = i.era
            CROSS JOIN LATERAL (SELECT b.timeout > s.timeout 
                AND (SELECT count(*) > 0 FROM (SELECT FROM zlock.entry e WHERE e.session = s.id LIMIT 1) x) AS wakes) o
            LEFT JOIN zlock.watched w ON w.session = b.session AND w.beat = b.beat;
END $$;

-- Returns some sessions that have been silent for their timeout by the server's clock. They are looked for from a random one on,
-- and the IDs are random, too, so that no call reads all sessions and no session is left out by all calls.
CREATE OR REPLACE FUNCTION zlock.v2_silent(p_limit bigint)
RETURNS SETOF bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first bigint := random() * 9223372036854775000;
BEGIN
    {{enter}}
    DELETE FROM zlock.tally WHERE scope IN (SELECT t.scope FROM zlock.tally t WHERE t.counted < now() - interval '1 hour'
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
    RETURN QUERY SELECT s.session FROM (
            (SELECT b.* FROM zlock.beat b WHERE b.session >= first ORDER BY b.session LIMIT 1000)
            UNION ALL (SELECT b.* FROM zlock.beat b WHERE b.session < first ORDER BY b.session LIMIT 1000)) s
        WHERE s.renewed + s.timeout * interval '1 ms' < clock_timestamp() LIMIT p_limit;
END $$;

-- Adds to the time for which clients have watched sessions.
CREATE OR REPLACE FUNCTION zlock.v2_watched(p_sessions bigint[], p_beats bigint[], p_timeouts bigint[], p_watched bigint[], p_spans bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    {{enter}}
    -- What a crash takes away only makes it shorter.
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO zlock.watched AS w (session, beat, watched)
        SELECT b.session, b.beat, q.span FROM unnest(p_sessions, p_beats, p_timeouts, p_watched, p_spans) q (session, beat, timeout, watched, span)
            JOIN zlock.beat b ON b.session = q.session AND b.beat = q.beat AND b.timeout = q.timeout
            LEFT JOIN zlock.watched o ON o.session = b.session AND o.beat = b.beat
        WHERE q.watched = coalesce(o.watched, 0) AND q.span > 0 ORDER BY b.session
        ON CONFLICT (session) DO UPDATE SET beat = excluded.beat, watched = CASE WHEN w.beat = excluded.beat THEN w.watched ELSE 0 END + excluded.watched
        WHERE w.beat < excluded.beat OR w.beat = excluded.beat AND w.watched = (SELECT q.watched
            FROM unnest(p_sessions, p_watched) q (session, watched) WHERE q.session = w.session LIMIT 1);
END $$;

-- Ends sessions, and removes some of what they own, of some scopes first. Returns 0 if a session is over, 1 if there is more to
-- remove, 2 if a transaction of it is in flight, or 3 if it has had another heartbeat.
CREATE OR REPLACE FUNCTION zlock.v2_end(p_sessions bigint[], p_beats bigint[], p_first bytea[])
RETURNS SETOF integer LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended record; live bigint; gone bytea[]; free bigint; room integer := 1000;
BEGIN
    {{enter}}
    live := zlock.v2_incarnation();
    FOR ended IN SELECT q.session, q.beat FROM unnest(p_sessions, p_beats) WITH ORDINALITY q (session, beat, n) ORDER BY q.n LOOP
        PERFORM FROM zlock.beat b WHERE b.session = ended.session FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM zlock.beat b WHERE b.session = ended.session) THEN
            RETURN NEXT 2;
            CONTINUE;
        END IF;
        -- One that was lost with the history is over, whatever its heartbeat.
        IF EXISTS (SELECT FROM zlock.beat b JOIN zlock.session s ON s.id = b.session JOIN zlock.incarnation i ON i.id = s.incarnation
                JOIN zlock.incarnation l ON l.id = live AND l.era = i.era WHERE b.session = ended.session AND b.beat <> ended.beat) THEN
            RETURN NEXT 3;
            CONTINUE;
        END IF;
        PERFORM FROM zlock.lane l WHERE l.session = ended.session FOR UPDATE SKIP LOCKED;
        GET DIAGNOSTICS free = ROW_COUNT;
        IF free < (SELECT count(*) FROM zlock.lane l WHERE l.session = ended.session) THEN
            RETURN NEXT 2;
            CONTINUE;
        END IF;
        PERFORM zlock.v2_forget(ended.session);
        gone := ARRAY(SELECT e.id FROM zlock.entry e WHERE e.session = ended.session
            ORDER BY e.scope = ANY (p_first) DESC LIMIT room FOR UPDATE SKIP LOCKED);
        PERFORM zlock.v2_remove(gone);
        room := room - cardinality(gone);
        RETURN NEXT (room = 0)::integer;
    END LOOP;
END $$;

-- Raises the number of a lane, and returns it with what `v2_salt` returns. It waits for the transactions that came over the lane.
CREATE OR REPLACE FUNCTION zlock.v2_raise(p_session bigint, p_wire integer)
RETURNS TABLE (lane bigint, salt bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint;
BEGIN
    {{enter}}
    {{check}}
    RETURN QUERY UPDATE zlock.lane l SET number = l.number + 1 FROM zlock.setting g
        WHERE l.session = p_session AND l.wire = p_wire RETURNING l.number, g.salt;
    IF NOT FOUND THEN
        {{over}}
    END IF;
END $$;
