-- What a lane does. These functions run for each acquisition, so they call no other one: what they share is put into their text.

-- Deletes nodes. Returns 1 with each one that was deleted, and 3 with each one that another transaction protects. It commits without
-- waiting for the disk, and so it may notify those who wait behind the nodes: a notification takes a lock of the whole server until its
-- transaction ends. It returns 6 if the client has to call `v2_wake` after it, too.
CREATE OR REPLACE FUNCTION zlock.v2_delete(p_session bigint, p_lane bigint, p_gone bytea[], p_stripe integer[])
RETURNS TABLE (o_status integer, o_for bytea, o_key bytea, o_created bigint, o_changed bigint, o_session bigint, o_label text,
    o_writes bigint, o_made timestamptz, o_going boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p_wire CONSTANT integer := 0; live bigint; own bigint; lane bigint; grants bigint; done bigint;
    ignored text; before pg_snapshot; since bigint;
BEGIN
    {{enter_lane}}
    ignored := set_config('synchronous_commit', 'off', true);
    before := pg_current_snapshot();
    since := pg_snapshot_xmin(before)::text::bigint;
    RETURN QUERY DELETE FROM zlock.entry g {{where_gone}}
        RETURNING 1, g.key, g.key, g.created, g.changed, g.session, g.label, g.writes, g.made,
            (SELECT count(pg_notify('zlock_' || w.session, {{payload}})) > 0 FROM ({{behind}}) w WHERE w.session <> p_session);
    {{busy}}
    -- A create that was not visible to the statement may have read what is gone now. Whoever has a queue has marked its row.
    PERFORM FROM zlock.stripe t WHERE t.n = ANY (p_stripe) AND t.xmax::text::bigint >= since & 4294967295
        AND NOT pg_visible_in_snapshot(((since & ~4294967295) | t.xmax::text::bigint)::text::xid8, before);
    IF FOUND THEN
        o_status := 6;
        RETURN NEXT;
    END IF;
END $$;

-- Deletes nodes as `v2_delete` does, without waking anybody, and then appends nodes to queues. Returns 0 with each node that is read
-- for an appended one, whose key is the first: the last nodes up to it, or all without a limit; and whether another transaction has
-- touched it, and so may be about to delete it. A node without a row in the answer could not be appended, since another
-- transaction holds its queue. In quiet time, 4 stands for all that were to be appended.
CREATE OR REPLACE FUNCTION zlock.v2_append(p_session bigint, p_lane bigint, p_gone bytea[], p_id bytea[], p_scope bytea[],
    p_stripe integer[], p_path bytea[], p_key bytea[], p_label text[], p_data bytea[], p_floor bigint[], p_limit bigint[])
RETURNS TABLE (o_status integer, o_for bytea, o_key bytea, o_created bigint, o_changed bigint, o_session bigint, o_label text,
    o_writes bigint, o_made timestamptz, o_going boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p_wire CONSTANT integer := 0; live bigint; own bigint; lane bigint; grants bigint; done bigint;
    got integer[];
BEGIN
    {{enter_lane}}
    IF cardinality(p_gone) > 0 THEN
        RETURN QUERY DELETE FROM zlock.entry g {{where_gone}}
            RETURNING 1, g.key, g.key, g.created, g.changed, g.session, g.label, g.writes, g.made, false;
        {{busy}}
    END IF;
    IF grants IS DISTINCT FROM live THEN
        o_status := 4;
        RETURN NEXT;
        RETURN;
    END IF;
    -- Three statements: none of them sees what was committed while it waited for a lock, or what it has inserted itself.
    SELECT array_agg(s.n) INTO got FROM (
        SELECT t.n FROM zlock.stripe t WHERE t.n = ANY (p_stripe) FOR UPDATE SKIP LOCKED) s;
    INSERT INTO zlock.entry (id, scope, created, changed, session, kind, label, path, key, data)
        SELECT a.id, a.scope, a.number, a.number, p_session, 0, a.label, a.path, a.key, a.data FROM (
            SELECT u.*, nextval('zlock.number') AS number
            FROM (SELECT unnest(p_id) AS id, unnest(p_scope) AS scope, unnest(p_stripe) AS stripe, unnest(p_path) AS path,
                unnest(p_key) AS key, unnest(p_label) AS label, unnest(p_data) AS data) u
            WHERE u.stripe = ANY (got)) a
        ON CONFLICT (id) DO NOTHING;
    -- Not by the index of sessions, of which this one may have many nodes.
    RETURN QUERY SELECT 0, e.key, r.*
        FROM (SELECT unnest(p_id) AS id, unnest(p_path) AS path, unnest(p_floor) AS floor, unnest(p_limit) AS up_to) a
        JOIN zlock.entry e ON e.id = a.id AND e.path = a.path AND NOT e.session IS DISTINCT FROM p_session
        CROSS JOIN LATERAL (
            SELECT x.key, x.created, x.changed, x.session, x.label, x.writes, x.made, x.xmax <> '0'::xid FROM zlock.entry x
            WHERE x.scope = e.scope AND x.path = e.path AND x.created >= a.floor
                AND x.created <= CASE WHEN a.up_to IS NULL THEN 9223372036854775807 ELSE e.created END
            ORDER BY x.scope DESC, x.created DESC LIMIT a.up_to) r;
END $$;

-- Executes the steps of transactions, each in phases: locks, conditions, writes, reads. So one that is busy, or whose condition
-- fails, has no effect. Returns, for each step by its place in the arrays: 0 with an entry that was read, 1 with one that was written
-- or deleted, 2 if a condition failed, with the entry that it found, 3 if another transaction holds what it needs, 4 in quiet time,
-- or 5 if the session has to sweep first.
CREATE OR REPLACE FUNCTION zlock.v2_execute(p_session bigint, p_wire integer, p_lane bigint, p_tx integer[], p_op integer[],
    p_id bytea[], p_scope bytea[], p_stripe integer[], p_kind integer[], p_path bytea[], p_key bytea[], p_a bigint[], p_b bigint[],
    p_c bigint[], p_label text[], p_data bytea[])
RETURNS TABLE (o_n bigint, o_status integer, o_key bytea, o_created bigint, o_changed bigint, o_session bigint, o_label text,
    o_writes bigint, o_made timestamptz, o_data bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    live bigint; own bigint; lane bigint; grants bigint; waits CONSTANT boolean := p_wire > 0; o record;
    e zlock.entry; tx integer := -1; is_over boolean; is_good boolean; holds boolean; other bigint;
    num bigint; last bigint;
BEGIN
    {{enter_lane}}
    FOR o IN SELECT * FROM unnest(p_tx, p_op, p_id, p_scope, p_stripe, p_kind, p_path, p_key, p_a, p_b, p_c, p_label, p_data)
        WITH ORDINALITY u (tx, op, id, scope, stripe, kind, path, key, a, b, c, label, data, n)
    LOOP
        IF o.tx <> tx THEN
            tx := o.tx; is_over := false; num := NULL; last := NULL;
        END IF;
        CONTINUE WHEN is_over;
        o_n := o.n; o_status := NULL; e := NULL; is_good := true;
        IF o.op = 1 THEN
            -- The scope.
            IF waits THEN
                PERFORM FROM zlock.stripe t WHERE t.n = o.stripe FOR UPDATE;
            ELSE
                PERFORM FROM zlock.stripe t WHERE t.n = o.stripe FOR UPDATE SKIP LOCKED;
                is_good := FOUND;
            END IF;
        ELSIF o.op IN (2, 3, 4) THEN
            -- An entry that is deleted, or replaced unless it is of the owner a; one that is updated; one that must exist until the commit.
            CASE
                WHEN o.op = 2 AND waits THEN
                    PERFORM FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path AND x.session IS DISTINCT FROM o.a FOR UPDATE;
                WHEN o.op = 3 AND waits THEN
                    PERFORM FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path FOR NO KEY UPDATE;
                WHEN waits THEN
                    PERFORM FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path FOR KEY SHARE;
                WHEN o.op = 2 THEN
                    PERFORM FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path AND x.session IS DISTINCT FROM o.a FOR UPDATE SKIP LOCKED;
                WHEN o.op = 3 THEN
                    PERFORM FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path FOR NO KEY UPDATE SKIP LOCKED;
                ELSE
                    PERFORM FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path FOR KEY SHARE SKIP LOCKED;
            END CASE;
            is_good := FOUND OR NOT EXISTS (SELECT FROM zlock.entry x
                WHERE x.id = o.id AND x.path = o.path AND (o.op > 2 OR x.session IS DISTINCT FROM o.a));
        ELSIF o.op = 5 THEN
            IF grants IS DISTINCT FROM live THEN
                o_status := 4;
            END IF;
        ELSIF o.op = 10 THEN
            -- The session has no receipt in slot a of write b.
            SELECT r.number INTO num FROM zlock.receipt r WHERE r.session = p_session AND r.slot = o.a AND r.write = o.b;
            IF FOUND THEN
                o_status := 2; e.key := ''; e.created := num; e.changed := num; e.session := p_session; e.writes := 0;
            END IF;
        ELSIF o.op BETWEEN 11 AND 15 THEN
            SELECT * INTO e FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path;
            CASE o.op
                WHEN 11 THEN holds := e.id IS NULL;
                WHEN 12 THEN holds := e.created = o.a AND e.changed = o.b;
                WHEN 13 THEN holds := e.writes = o.a;
                WHEN 14 THEN holds := e.session = p_session;
                ELSE
                    -- It exists, and its session is of the live incarnation, or at least of its era.
                    holds := e.created = o.a;
                    SELECT i.id, i.era = l.era INTO other, is_good FROM zlock.session s JOIN zlock.incarnation i ON i.id = s.incarnation
                        JOIN zlock.incarnation l ON l.id = live WHERE s.id = e.session;
                    IF e.session IS NOT NULL AND is_good IS NOT true THEN
                        holds := false; e := NULL;
                    ELSIF holds AND other <> live THEN
                        o_status := 5;
                    END IF;
                    is_good := true;
            END CASE;
            IF holds IS NOT true THEN
                o_status := 2;
            END IF;
        ELSIF o.op = 20 THEN
            SELECT * INTO e FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path;
            -- The owner is a.
            IF e.id IS NULL OR e.session IS DISTINCT FROM o.a THEN
                num := coalesce(num, nextval('zlock.number'));
                IF e.id IS NOT NULL THEN
                    DELETE FROM zlock.entry x WHERE x.id = e.id;
                END IF;
                INSERT INTO zlock.entry (id, scope, created, changed, session, kind, label, path, key, data)
                    VALUES (o.id, o.scope, num, num, o.a, o.kind, o.label, o.path, o.key, o.data)
                    RETURNING * INTO e;
            END IF;
            last := e.created; o_status := 1;
        ELSIF o.op = 21 THEN
            num := coalesce(num, nextval('zlock.number'));
            UPDATE zlock.entry x SET label = coalesce(o.label, x.label), data = coalesce(o.data, x.data), changed = num,
                writes = x.writes + (o.data IS NOT NULL)::integer WHERE x.id = o.id AND x.path = o.path RETURNING * INTO e;
            o_status := 1;
        ELSIF o.op = 22 THEN
            num := coalesce(num, nextval('zlock.number'));
            INSERT INTO zlock.receipt AS r VALUES (p_session, o.a, o.b, num)
                ON CONFLICT (session, slot) DO UPDATE SET write = excluded.write, number = excluded.number;
        ELSIF o.op = 23 THEN
            DELETE FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path RETURNING * INTO e;
            o_status := 1;
        ELSIF o.op IN (30, 40) THEN
            -- With a 4, with the data.
            RETURN QUERY SELECT o.n, 0, x.key, x.created, x.changed, x.session, x.label, x.writes, x.made,
                CASE WHEN o.op = 40 THEN x.data ELSE '' END FROM zlock.entry x WHERE x.id = o.id AND x.path = o.path;
        ELSE
            -- The last b from number a to c, or to the entry that was appended or found.
            RETURN QUERY SELECT o.n, 0, x.key, x.created, x.changed, x.session, x.label, x.writes, x.made,
                CASE WHEN o.op = 41 THEN x.data ELSE '' END FROM zlock.entry x
                WHERE x.scope = o.scope AND x.path = o.path AND x.created >= o.a AND x.created <= coalesce(o.c, last, 9223372036854775807)
                ORDER BY x.scope DESC, x.created DESC LIMIT o.b;
        END IF;
        IF NOT is_good THEN
            o_status := 3;
        END IF;
        is_over := o_status > 1;
        IF o_status > 1 OR e.id IS NOT NULL AND o_status = 1 THEN
            o_key := e.key; o_created := e.created; o_changed := e.changed; o_session := e.session; o_label := e.label; o_writes := e.writes;
            o_made := e.made; o_data := CASE WHEN o_status = 2 THEN e.data ELSE '' END;
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

-- Notifies the sessions that changes of nodes concern, after these were committed: the owners of those that were updated, and who
-- waits behind those that were deleted or relabelled.
CREATE OR REPLACE FUNCTION zlock.v2_wake(p_session bigint, p_scope bytea[], p_stripe integer[], p_created bigint[], p_payload text[],
    p_updated bytea[], p_update text[])
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    {{settings}}
    PERFORM FROM zlock.stripe t WHERE t.n = ANY (p_stripe) AND t.xmax::text::bigint IN (
        SELECT x::text::bigint & 4294967295 FROM pg_snapshot_xip(pg_current_snapshot()) x);
    IF FOUND THEN
        -- A create in flight may have read what is gone now: it must be seen here.
        PERFORM set_config('lock_timeout', '200ms', true), set_config('synchronous_commit', 'off', true);
        PERFORM FROM zlock.stripe t WHERE t.n = ANY (p_stripe) FOR KEY SHARE;
    END IF;
    PERFORM pg_notify('zlock_' || e.session, a.payload) FROM unnest(p_updated, p_update) a (id, payload)
        JOIN zlock.entry e ON e.id = a.id WHERE NOT e.session = p_session;
    PERFORM pg_notify('zlock_' || w.session, g.payload) FROM unnest(p_scope, p_created, p_payload) g (scope, created, payload)
        CROSS JOIN LATERAL ({{behind}}) w WHERE w.session <> p_session;
END $$;
