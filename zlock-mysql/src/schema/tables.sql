-- The schema of zlock, version 1. Running it again replaces the procedures and leaves the tables alone.

-- What the store may lose, and what it is known by.
CREATE TABLE IF NOT EXISTS zlock_setting (
    one TINYINT NOT NULL PRIMARY KEY DEFAULT 1,
    version INT NOT NULL,
    -- Set by an operator. `auto` is `one-server` until there is a reason for `lossy`.
    class VARBINARY(16) NOT NULL DEFAULT 'auto',
    -- Why `auto` is `lossy`.
    reason VARBINARY(255),
    -- The longest timeout of a session that owns something, in milliseconds.
    longest BIGINT NOT NULL DEFAULT 30000,
    -- For how long a server that was replaced may still confirm commits, in milliseconds.
    overlap BIGINT NOT NULL DEFAULT 0,
    -- Of the server on which the schema was installed.
    server VARBINARY(255) NOT NULL,
    -- Whether any session has begun.
    used TINYINT NOT NULL DEFAULT 0,
    -- Changed after tables were put back under a running server.
    restored BIGINT NOT NULL,
    -- Keeps others from choosing names whose hashes collide.
    salt BINARY(32) NOT NULL
) ENGINE=InnoDB
//
-- The lives of servers as primaries. Between those of two eras, commits may have been lost.
CREATE TABLE IF NOT EXISTS zlock_incarnation (
    id BIGINT NOT NULL PRIMARY KEY,
    n BIGINT NOT NULL,
    era BIGINT NOT NULL,
    server VARBINARY(255) NOT NULL,
    started BIGINT NOT NULL,
    restored BIGINT NOT NULL,
    -- For how many milliseconds clients have watched it.
    watched BIGINT NOT NULL,
    -- Whether quiet time is over.
    is_over TINYINT NOT NULL,
    UNIQUE KEY (n),
    UNIQUE KEY (server, started, restored)
) ENGINE=InnoDB
//
CREATE TABLE IF NOT EXISTS zlock_session (
    id BIGINT NOT NULL PRIMARY KEY,
    -- In which it began or was last swept.
    incarnation BIGINT NOT NULL,
    -- While it owns something, in milliseconds: whoever dies right after a rest is not waited for as long as it would rest.
    timeout BIGINT NOT NULL
) ENGINE=InnoDB STATS_AUTO_RECALC=0
//
-- A table of its own, so that neither a heartbeat nor a create meets versions or locks of the other.
CREATE TABLE IF NOT EXISTS zlock_beat (
    session BIGINT NOT NULL PRIMARY KEY,
    beat BIGINT NOT NULL,
    -- In milliseconds.
    timeout BIGINT NOT NULL,
    -- By the server's clock, in microseconds, which decides about sessions that own nothing.
    renewed BIGINT NOT NULL
) ENGINE=InnoDB STATS_AUTO_RECALC=0
//
-- For how many milliseconds clients have watched a heartbeat.
CREATE TABLE IF NOT EXISTS zlock_watched (
    session BIGINT NOT NULL PRIMARY KEY,
    beat BIGINT NOT NULL,
    watched BIGINT NOT NULL
) ENGINE=InnoDB STATS_AUTO_RECALC=0
//
CREATE TABLE IF NOT EXISTS zlock_lane (
    session BIGINT NOT NULL,
    wire INT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (session, wire)
) ENGINE=InnoDB STATS_AUTO_RECALC=0
//
-- The locks of scopes, each with the last number that was given out under it, and the number of entries that there are. So the first in
-- a queue learns that nobody is before it without a look at what was deleted and not yet purged.
CREATE TABLE IF NOT EXISTS zlock_stripe (
    n INT NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL,
    living BIGINT NOT NULL
) ENGINE=InnoDB STATS_AUTO_RECALC=0
//
INSERT IGNORE INTO zlock_stripe (n, last, living)
    WITH RECURSIVE numbers AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 511)
    SELECT a.n * 16 + b.n, 0, 0 FROM numbers a JOIN numbers b ON b.n < 16
//
-- The ID is a hash of the scope and the key; that of a node is one of the key alone, as no other node has it.
CREATE TABLE IF NOT EXISTS zlock_entry (
    id BINARY(16) NOT NULL PRIMARY KEY,
    scope BINARY(16) NOT NULL,
    stripe INT NOT NULL,
    created BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    session BIGINT,
    writes BIGINT NOT NULL DEFAULT 0,
    -- By the server's clock, in microseconds.
    made BIGINT NOT NULL,
    -- 0 is a node, 1 a member, 2 a value.
    kind INT NOT NULL,
    label VARBINARY(1024),
    -- Bytes of UTF-8.
    path BLOB NOT NULL,
    name BLOB NOT NULL,
    data LONGBLOB NOT NULL,
    KEY scope (scope, created, changed),
    KEY session (session)
) ENGINE=InnoDB STATS_AUTO_RECALC=0
//
CREATE TABLE IF NOT EXISTS zlock_receipt (
    session BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    mark BIGINT NOT NULL,
    -- Of the transaction that left it.
    number BIGINT NOT NULL,
    PRIMARY KEY (session, slot)
) ENGINE=InnoDB STATS_AUTO_RECALC=0
//
