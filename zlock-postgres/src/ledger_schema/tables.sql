-- The schema of zlock, version 2. Running it again replaces the functions and leaves the tables alone.

CREATE SCHEMA IF NOT EXISTS zlock;

DO $install$
BEGIN
    IF to_regclass('zlock.node') IS NOT NULL THEN
        RAISE EXCEPTION 'the schema zlock in this database is of version 1'
            USING ERRCODE = 'ZL013', HINT = 'end the clients of that version, and run DROP SCHEMA zlock CASCADE';
    END IF;
    IF to_regclass('zlock.setting') IS NOT NULL THEN
        RETURN;
    END IF;

    -- Places in queues, fencing tokens, and versions.
    CREATE SEQUENCE zlock.number AS bigint CACHE 1;

    CREATE TABLE zlock.setting (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        -- What the store may lose, set by an operator. `auto` is `one-server` until there is a reason for `lossy`.
        class text NOT NULL DEFAULT 'auto' CHECK (class IN ('auto', 'lossy', 'one-server', 'sync')),
        -- Why `auto` is `lossy`.
        reason text,
        -- The longest timeout of a session that owns something.
        longest interval NOT NULL DEFAULT '30 s' CHECK (longest BETWEEN '100 ms' AND '1 day'),
        -- For how long a server that was replaced may still confirm commits.
        overlap interval NOT NULL DEFAULT '0 s' CHECK (overlap BETWEEN '0 s' AND '1 day'),
        -- Of the server on which the schema was installed.
        system bigint NOT NULL,
        timeline text NOT NULL,
        -- Whether any session has begun.
        used boolean NOT NULL DEFAULT false,
        -- Changed after tables were put back under a running server.
        restored bigint NOT NULL,
        -- Keeps others from choosing names whose hashes collide.
        salt bytea NOT NULL
    );

    -- Emptied by a crash, also by that of a single server process, which may lose commits and restarts nothing.
    CREATE UNLOGGED TABLE zlock.life (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        number bigint NOT NULL,
        restored bigint NOT NULL,
        -- The incarnation in which owners are admitted.
        grants bigint
    );

    -- The lives of the server as a primary. Between those of two eras, commits may have been lost.
    CREATE TABLE zlock.incarnation (
        id bigint PRIMARY KEY,
        n bigint NOT NULL UNIQUE,
        era bigint NOT NULL,
        started timestamptz NOT NULL,
        timeline text NOT NULL,
        system bigint NOT NULL,
        restored bigint NOT NULL,
        -- For how many milliseconds clients have watched it.
        watched bigint NOT NULL,
        -- Whether quiet time is over.
        is_over boolean NOT NULL
    ) WITH (fillfactor = 50);

    CREATE TABLE zlock.session (
        id bigint PRIMARY KEY,
        -- In which it began or was last swept.
        incarnation bigint NOT NULL,
        -- While it owns something, in milliseconds: whoever dies right after a rest is not waited for as long as it would rest.
        timeout bigint NOT NULL
    );

    -- A row of its own, so that neither a heartbeat nor a create meets versions or locks of the other.
    CREATE TABLE zlock.beat (
        session bigint PRIMARY KEY,
        beat bigint NOT NULL,
        -- In milliseconds.
        timeout bigint NOT NULL CHECK (timeout BETWEEN 1 AND 86400000),
        -- By the server's clock, which decides about sessions that own nothing.
        renewed timestamptz NOT NULL
    ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

    -- For how many milliseconds clients have watched a heartbeat.
    CREATE TABLE zlock.watched (
        session bigint PRIMARY KEY,
        beat bigint NOT NULL,
        watched bigint NOT NULL
    ) WITH (fillfactor = 50);

    CREATE TABLE zlock.lane (
        session bigint NOT NULL,
        wire integer NOT NULL,
        number bigint NOT NULL,
        PRIMARY KEY (session, wire)
    );

    -- The locks of scopes. A row is locked, and never changed.
    CREATE TABLE zlock.stripe (n integer PRIMARY KEY);
    INSERT INTO zlock.stripe SELECT generate_series(0, 8191);

    -- The ID is a hash of the scope and the key; that of a node is one of the key alone, as no other node has it. There is one check
    -- for all columns, since each one costs time for each entry.
    CREATE TABLE zlock.entry (
        id bytea PRIMARY KEY,
        scope bytea NOT NULL,
        created bigint NOT NULL,
        changed bigint NOT NULL,
        session bigint,
        writes bigint NOT NULL DEFAULT 0,
        made timestamptz NOT NULL DEFAULT clock_timestamp(),
        -- 0 is a node, 1 a member, 2 a value.
        kind integer NOT NULL,
        label text,
        -- As bytes of UTF-8, whatever the encoding of the database.
        path bytea NOT NULL,
        key bytea NOT NULL,
        data bytea NOT NULL,
        CHECK (length(path) + length(key) + length(data) <= 1100000)
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
    CREATE INDEX entry_scope ON zlock.entry (scope, created);
    CREATE INDEX entry_session ON zlock.entry (session) WHERE session IS NOT NULL;

    CREATE TABLE zlock.receipt (
        session bigint NOT NULL,
        slot integer NOT NULL,
        write bigint NOT NULL,
        -- Of the transaction that left it.
        number bigint NOT NULL,
        PRIMARY KEY (session, slot)
    ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

    INSERT INTO zlock.setting (system, timeline, restored, salt)
        SELECT c.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), {{random}},
            sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'))
        FROM pg_control_system() c;
    INSERT INTO zlock.life (number, restored) SELECT {{random}}, g.restored FROM zlock.setting g;
    -- No client can have been granted anything before this transaction.
    INSERT INTO zlock.incarnation SELECT {{live}}, 1, 1, pg_postmaster_start_time(), g.timeline, g.system, g.restored, 0, true
        FROM zlock.setting g, zlock.life c;
    UPDATE zlock.life SET grants = i.id FROM zlock.incarnation i;
END $install$;

-- What was counted last in large scopes. It is never older than a moment when it is used, so a crash or a replica may lose it.
CREATE UNLOGGED TABLE IF NOT EXISTS zlock.tally (
    scope bytea PRIMARY KEY,
    path bytea NOT NULL,
    incarnation bigint NOT NULL,
    count bigint NOT NULL,
    changed bigint NOT NULL,
    counted timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE OR REPLACE FUNCTION zlock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2';
