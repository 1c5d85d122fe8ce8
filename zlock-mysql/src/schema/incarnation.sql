-- Writes into variables of the connection which server this is, and when it has started.
CREATE PROCEDURE zlock_here() SQL SECURITY DEFINER
BEGIN
    SELECT {{uid}}, CAST(UNIX_TIMESTAMP() AS SIGNED) - CAST(v.VARIABLE_VALUE AS SIGNED) INTO @zlock_server, @zlock_started
        FROM {{status}} v WHERE v.VARIABLE_NAME = 'UPTIME';
END
//
-- Writes the settings of a new store, and begins its first incarnation. The caller commits.
CREATE PROCEDURE zlock_install() SQL SECURITY DEFINER
BEGIN
    DECLARE first INT;
    SELECT t.n INTO first FROM zlock_stripe t WHERE t.n = 0 FOR UPDATE;
    IF NOT EXISTS (SELECT 1 FROM zlock_setting g) THEN
        INSERT INTO zlock_setting (one, version, server, restored, salt)
            VALUES (1, 1, @zlock_server, {{random}}, UNHEX(SHA2(CONCAT(UUID(), RAND(), RAND(), NOW(6)), 256)));
        -- No client can have been granted anything before this transaction.
        INSERT INTO zlock_incarnation (id, n, era, server, started, restored, watched, is_over)
            SELECT {{random}}, 1, 1, g.server, @zlock_started, g.restored, 0, 1 FROM zlock_setting g;
    END IF;
END
//
-- Writes down why the class `auto` is `lossy`, once there is a reason.
CREATE PROCEDURE zlock_find_class() SQL SECURITY DEFINER
BEGIN
    IF (@@global.innodb_flush_log_at_trx_commit <> 1 OR @@global.log_bin)
            AND EXISTS (SELECT 1 FROM zlock_setting g WHERE g.class = 'auto' AND g.reason IS NULL) THEN
        UPDATE zlock_setting SET reason = IF(@@global.log_bin, 'the binary log is on, so there may be a replica',
            'innodb_flush_log_at_trx_commit is not 1') WHERE class = 'auto' AND reason IS NULL;
    END IF;
END
//
-- Begins the live incarnation, unless it has begun. The caller commits.
CREATE PROCEDURE zlock_begin_incarnation() SQL SECURITY DEFINER
this: BEGIN
    DECLARE v_class, v_server VARBINARY(255);
    DECLARE v_restored, v_longest, l_n, l_era, l_started, l_restored, l_watched BIGINT;
    DECLARE v_used, l_is_over, is_lossy, is_over TINYINT;
    DECLARE l_server VARBINARY(255);
    SELECT g.class, g.server, g.restored, g.longest, g.used INTO v_class, v_server, v_restored, v_longest, v_used FROM zlock_setting g FOR UPDATE;
    IF EXISTS (SELECT 1 FROM zlock_incarnation i WHERE {{live}} AND i.restored = v_restored) THEN
        LEAVE this;
    END IF;
    IF EXISTS (SELECT 1 FROM zlock_incarnation i WHERE i.server = @zlock_server AND i.started = @zlock_started AND i.restored = v_restored) THEN
        -- Another server was the primary meanwhile.
        SET v_restored = {{random}};
        UPDATE zlock_setting SET restored = v_restored;
    END IF;
    IF @zlock_server <> v_server THEN
        UPDATE zlock_setting SET reason = 'the server is not that of the install' WHERE class = 'auto' AND reason IS NULL;
    END IF;
    CALL zlock_find_class();
    SELECT IF(g.class = 'auto', IF(g.reason IS NULL, 'one-server', 'lossy'), g.class) INTO v_class FROM zlock_setting g;
    SELECT i.n, i.era, i.server, i.started, i.restored, i.watched, i.is_over
        INTO l_n, l_era, l_server, l_started, l_restored, l_watched, l_is_over FROM zlock_incarnation i ORDER BY i.n DESC LIMIT 1;
    SET is_lossy = v_restored <> l_restored OR @zlock_server <> l_server OR v_class = 'lossy';
    -- In a store that nobody has used, on the server of the install, nobody has lost anything.
    SET is_over = NOT v_used AND @zlock_server = v_server OR l_is_over AND NOT is_lossy;
    INSERT INTO zlock_incarnation (id, n, era, server, started, restored, watched, is_over)
        VALUES ({{random}}, l_n + 1, l_era + is_lossy, @zlock_server, @zlock_started, v_restored, IF(is_lossy, 0, l_watched), is_over);
    IF is_lossy THEN
        -- Waits for the transactions of sessions. Those that follow over a connection from before are refused.
        UPDATE zlock_lane SET number = number + 1;
        -- Above all that was given out in a lost part of the history, also where nothing is known of it, and below the clock by the end of
        -- quiet time: so it is not lifted again before anything was granted.
        UPDATE zlock_stripe SET last = GREATEST({{now}}, last + IF(l_is_over, v_longest * 500, 0));
        -- Tables that were put back may not be of one moment.
        UPDATE zlock_stripe t LEFT JOIN (SELECT e.stripe, COUNT(*) AS n FROM zlock_entry e GROUP BY e.stripe) c ON c.stripe = t.n
            SET t.living = COALESCE(c.n, 0);
    END IF;
END
//
-- Returns the settings of the store, and its history.
CREATE PROCEDURE zlock_setup() SQL SECURITY DEFINER
BEGIN
    SELECT {{history}}, g.class, g.class = 'lossy' OR g.class = 'auto' AND g.reason IS NOT NULL, g.reason, g.longest, g.overlap
        FROM zlock_setting g JOIN zlock_incarnation i ON {{live}} AND i.restored = g.restored;
END
//
CREATE PROCEDURE zlock_set_class(IN p_class VARBINARY(16)) SQL SECURITY DEFINER
BEGIN
    IF p_class = 'one-server' AND @@global.innodb_flush_log_at_trx_commit <> 1 THEN
        SIGNAL SQLSTATE 'ZL013' SET MESSAGE_TEXT = 'the class one-server needs innodb_flush_log_at_trx_commit=1';
    END IF;
    IF p_class NOT IN ('auto', 'lossy', 'one-server') THEN
        SIGNAL SQLSTATE 'ZL013' SET MESSAGE_TEXT = 'on MySQL a store is of the class lossy or one-server, or auto';
    END IF;
    UPDATE zlock_setting SET class = p_class, reason = NULL;
    CALL zlock_find_class();
END
//
-- Makes the live incarnation another one, after tables were put back under a running server: all sessions are over, and nothing is granted
-- for a while. Without an expected incarnation, in any case.
CREATE PROCEDURE zlock_restored(IN p_incarnation BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE live BIGINT;
    {{atomic}}
    SELECT COUNT(*) INTO live FROM zlock_setting FOR UPDATE;
    SELECT i.id INTO live FROM zlock_setting g JOIN zlock_incarnation i ON {{live}} AND i.restored = g.restored;
    IF p_incarnation IS NULL OR p_incarnation = live THEN
        UPDATE zlock_setting SET restored = {{random}};
        CALL zlock_begin_incarnation();
    END IF;
    COMMIT;
END
//
