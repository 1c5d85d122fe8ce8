-- The schema of zlock, version 1. Running it again changes nothing.

CREATE SCHEMA IF NOT EXISTS zlock;

-- Places in queues and fencing tokens, for all paths together.
CREATE SEQUENCE IF NOT EXISTS zlock.number AS bigint CACHE 1;

-- The longest session timeout that a client may ask for. After a failover to an asynchronous replica, no lock is granted for
-- this long.
CREATE TABLE IF NOT EXISTS zlock.setting (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    longest_ttl interval NOT NULL,
    -- For services whose failovers lose nothing, and that lack the functions that show one.
    static_term boolean NOT NULL DEFAULT false
);
INSERT INTO zlock.setting (longest_ttl) VALUES ('30 s') ON CONFLICT DO NOTHING;

-- The histories of the server: each promotion of a replica, each recovery of a backup to a point in time, and
-- each move to another cluster begins another one. A snapshot of a volume that is put back does not.
CREATE TABLE IF NOT EXISTS zlock.term (
    n integer PRIMARY KEY,
    system bigint NOT NULL,
    timeline text NOT NULL,
    began timestamptz NOT NULL,
    quiet interval NOT NULL
);

CREATE TABLE IF NOT EXISTS zlock.session (
    id bigint PRIMARY KEY,
    timeline text NOT NULL,
    beat bigint NOT NULL DEFAULT 0,
    ttl interval NOT NULL,
    renewed timestamptz NOT NULL,
    suspect timestamptz,
    ended boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The label is in the key so that a fence keeps it from being changed.
CREATE TABLE IF NOT EXISTS zlock.node (
    hash bigint NOT NULL,
    seq bigint NOT NULL,
    label text NOT NULL,
    id uuid NOT NULL UNIQUE,
    session bigint NOT NULL,
    path text NOT NULL,
    data bytea NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    -- The number of the last relabelling, by the count of the client that owns the node.
    relabelled bigint NOT NULL DEFAULT 0,
    created timestamptz NOT NULL,
    PRIMARY KEY (hash, seq, label)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS node_session ON zlock.node (session);

-- Creates that were given up: they must not take effect any more, however late they arrive.
CREATE TABLE IF NOT EXISTS zlock.void (
    id uuid PRIMARY KEY,
    session bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS void_session ON zlock.void (session);

CREATE TABLE IF NOT EXISTS zlock.value (
    created bigint PRIMARY KEY,
    hash bigint NOT NULL,
    path text NOT NULL,
    data bytea NOT NULL,
    number bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS value_hash ON zlock.value (hash);

-- What a write of a value leaves, so that it neither takes effect twice nor is reported wrongly.
CREATE TABLE IF NOT EXISTS zlock.receipt (
    session bigint NOT NULL,
    slot integer NOT NULL,
    write bigint NOT NULL,
    created bigint,
    number bigint,
    PRIMARY KEY (session, slot)
);

-- A member of a group, at the path of the group.
CREATE TABLE IF NOT EXISTS zlock.member (
    number bigint PRIMARY KEY,
    hash bigint NOT NULL,
    path text NOT NULL,
    name text NOT NULL,
    session bigint NOT NULL,
    data bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS member_hash ON zlock.member (hash);
CREATE INDEX IF NOT EXISTS member_session ON zlock.member (session);

CREATE OR REPLACE FUNCTION zlock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';
