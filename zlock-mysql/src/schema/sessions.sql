-- Begins a session. Returns the history, as a heartbeat does.
CREATE PROCEDURE zlock_begin(IN p_session BIGINT, IN p_timeout BIGINT, IN p_rest BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_longest, live BIGINT;
    {{atomic}}
    SELECT g.longest, i.id INTO v_longest, live FROM zlock_setting g JOIN zlock_incarnation i ON {{live}} AND i.restored = g.restored;
    IF live IS NULL THEN
        {{unbegun}}
    END IF;
    IF p_timeout > v_longest THEN
        SET @zlock_text = CONCAT('the session timeout of ', p_timeout, ' ms is above the longest, which is ', v_longest, ' ms');
        SIGNAL SQLSTATE 'ZL008' SET MESSAGE_TEXT = @zlock_text;
    END IF;
    CALL zlock_find_class();
    -- It may be the second time, since the first answer was lost.
    INSERT IGNORE INTO zlock_session (id, incarnation, timeout) VALUES (p_session, live, p_timeout);
    INSERT IGNORE INTO zlock_beat (session, beat, timeout, renewed) VALUES (p_session, 0, p_rest, {{now}});
    INSERT IGNORE INTO zlock_lane (session, wire, number) VALUES (p_session, 0, 0), (p_session, 1, 0);
    IF NOT (SELECT g.used FROM zlock_setting g) THEN
        UPDATE zlock_setting SET used = 1;
    END IF;
    SELECT {{history}} FROM zlock_setting g JOIN zlock_incarnation i ON i.id = live;
    COMMIT;
END
//
-- Counts a heartbeat, and adds to the watched time of the incarnation. Returns the history, the incarnation of the session, whether the
-- time was added, and whether the session owns anything; then the places of those entries that it does not own.
CREATE PROCEDURE zlock_beat(IN p_session BIGINT, IN p_beat BIGINT, IN p_timeout BIGINT, IN p_known LONGTEXT CHARACTER SET ascii,
    IN p_incarnation BIGINT, IN p_watched BIGINT, IN p_span BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE own, live, v_era, v_quiet, found BIGINT;
    DECLARE added TINYINT DEFAULT 0;
    {{atomic}}
    {{check}}
    UPDATE zlock_beat b SET b.beat = p_beat, b.timeout = p_timeout, b.renewed = {{now}} WHERE b.session = p_session AND b.beat < p_beat;
    IF ROW_COUNT() > 0 THEN
        IF p_span > 0 THEN
            SELECT g.longest + g.overlap INTO v_quiet FROM zlock_setting g;
            -- Another client that writes it now counts the same time.
            SELECT i.id INTO found FROM zlock_incarnation i WHERE i.id = live AND i.id = p_incarnation AND i.watched = p_watched AND NOT i.is_over
                FOR UPDATE SKIP LOCKED;
            IF found IS NOT NULL THEN
                UPDATE zlock_incarnation SET watched = p_watched + p_span, is_over = p_watched + p_span >= v_quiet WHERE id = found;
                SET added = 1;
            END IF;
        END IF;
    ELSEIF NOT EXISTS (SELECT 1 FROM zlock_beat b WHERE b.session = p_session) THEN
        {{over}}
    END IF;
    -- Now and then, since it may be switched on at any time.
    IF RAND() < 0.03 THEN
        CALL zlock_find_class();
    END IF;
    SELECT {{history}}, own, added, p_timeout > s.timeout AND EXISTS (SELECT 1 FROM zlock_entry e WHERE e.session = s.id)
        FROM zlock_setting g JOIN zlock_incarnation i ON i.id = live JOIN zlock_session s ON s.id = p_session;
    SELECT k.n FROM JSON_TABLE(p_known, '$[*]' COLUMNS (n FOR ORDINALITY, id VARCHAR(32) PATH '$')) k
        LEFT JOIN zlock_entry e ON e.id = UNHEX(k.id) AND e.session = p_session WHERE e.id IS NULL;
    COMMIT;
END
//
-- Returns the live incarnation, and the names of the nodes that a session owns.
CREATE PROCEDURE zlock_nodes(IN p_session BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE own, live, v_era BIGINT;
    {{check}}
    SELECT live;
    SELECT e.name FROM zlock_entry e WHERE e.session = p_session AND e.kind = 0;
END
//
-- Deletes nodes of a session, and writes the live incarnation into its row. Returns 0 if that is another one than expected.
CREATE PROCEDURE zlock_sweep(IN p_session BIGINT, IN p_incarnation BIGINT, IN p_nodes LONGTEXT CHARACTER SET ascii) SQL SECURITY DEFINER
this: BEGIN
    DECLARE own, live, v_era BIGINT;
    {{gone}}
    DECLARE nodes CURSOR FOR SELECT e.id, e.stripe FROM JSON_TABLE(p_nodes, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) k
        STRAIGHT_JOIN zlock_entry e ON e.id = UNHEX(k.id) AND e.session = p_session AND e.kind = 0 ORDER BY e.stripe;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;
    {{atomic}}
    {{check}}
    IF live <> p_incarnation THEN
        SELECT 0;
        COMMIT;
        LEAVE this;
    END IF;
    OPEN nodes;
    {{remove nodes}}
    IF kept > 0 THEN
        {{busy}}
    END IF;
    UPDATE zlock_session SET incarnation = live WHERE id = p_session;
    IF NOT EXISTS (SELECT 1 FROM zlock_session s WHERE s.id = p_session) THEN
        {{over}}
    END IF;
    SELECT 1;
    COMMIT;
END
//
-- Returns those of these sessions that are not over.
CREATE PROCEDURE zlock_look(IN p_sessions LONGTEXT CHARACTER SET ascii) SQL SECURITY DEFINER
BEGIN
    -- One that has come to own something while it rests counts from then on.
    SELECT x.session, x.beat, IF(x.wakes, x.short, x.timeout), IF(x.wakes, 0, COALESCE(x.watched, 0)) FROM (
        SELECT b.session, b.beat, b.timeout, s.timeout AS short, w.watched,
            b.timeout > s.timeout AND EXISTS (SELECT 1 FROM zlock_entry e WHERE e.session = s.id) AS wakes
        FROM JSON_TABLE(p_sessions, '$[*]' COLUMNS (id BIGINT PATH '$')) q STRAIGHT_JOIN zlock_session s ON s.id = q.id
            STRAIGHT_JOIN zlock_beat b ON b.session = s.id STRAIGHT_JOIN zlock_setting g
            STRAIGHT_JOIN zlock_incarnation l ON l.server = @zlock_server AND l.started = @zlock_started AND l.restored = g.restored
            STRAIGHT_JOIN zlock_incarnation i ON i.id = s.incarnation AND i.era = l.era
            LEFT JOIN zlock_watched w ON w.session = b.session AND w.beat = b.beat) x;
END
//
-- Returns some sessions that have been silent for their timeout by the server's clock. They are looked for from a random one on,
-- and the IDs are random, too, so that no call reads all sessions and no session is left out by all calls.
CREATE PROCEDURE zlock_silent(IN p_limit BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE first BIGINT DEFAULT RAND() * 9223372036854775000;
    SELECT s.session FROM (
            (SELECT b.* FROM zlock_beat b WHERE b.session >= first ORDER BY b.session LIMIT 1000)
            UNION ALL (SELECT b.* FROM zlock_beat b WHERE b.session < first ORDER BY b.session LIMIT 1000)) s
        WHERE s.renewed + s.timeout * 1000 < {{now}} LIMIT p_limit;
END
//
-- Adds to the time for which clients have watched a session.
CREATE PROCEDURE zlock_watch(IN p_session BIGINT, IN p_beat BIGINT, IN p_timeout BIGINT, IN p_watched BIGINT, IN p_span BIGINT)
    SQL SECURITY DEFINER
BEGIN
    {{atomic}}
    DELETE FROM zlock_watched WHERE session = p_session AND beat < p_beat;
    INSERT IGNORE INTO zlock_watched (session, beat, watched)
        SELECT b.session, b.beat, 0 FROM zlock_beat b WHERE b.session = p_session AND b.beat = p_beat AND b.timeout = p_timeout;
    UPDATE zlock_watched SET watched = watched + p_span WHERE session = p_session AND beat = p_beat AND watched = p_watched
        AND EXISTS (SELECT 1 FROM zlock_beat b WHERE b.session = p_session AND b.beat = p_beat AND b.timeout = p_timeout);
    COMMIT;
END
//
-- Ends a session, and removes some of what it owns, of some scopes first. Returns 0 if it is over, 1 if there is more to remove, 2 if a
-- transaction of it is in flight, or 3 if it has had another heartbeat.
CREATE PROCEDURE zlock_end(IN p_session BIGINT, IN p_beat BIGINT, IN p_first LONGTEXT CHARACTER SET ascii) SQL SECURITY DEFINER
this: BEGIN
    DECLARE found, free, room BIGINT DEFAULT 1000;
    {{gone}}
    DECLARE wanted CURSOR FOR SELECT e.id, e.stripe FROM zlock_entry e FORCE INDEX (session)
        WHERE e.session = p_session AND JSON_CONTAINS(p_first, JSON_QUOTE(HEX(e.scope))) ORDER BY e.stripe LIMIT room;
    DECLARE others CURSOR FOR SELECT e.id, e.stripe FROM (SELECT x.id, x.stripe FROM zlock_entry x WHERE x.session = p_session LIMIT room) e
        ORDER BY e.stripe;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;
    {{atomic}}
    SET found = NULL;
    SELECT b.beat INTO found FROM zlock_beat b WHERE b.session = p_session FOR UPDATE SKIP LOCKED;
    IF found IS NULL AND EXISTS (SELECT 1 FROM zlock_beat b WHERE b.session = p_session) THEN
        SELECT 2;
        COMMIT;
        LEAVE this;
    END IF;
    -- One that was lost with the history is over, whatever its heartbeat.
    IF found <> p_beat AND EXISTS (SELECT 1 FROM zlock_session s JOIN zlock_incarnation a ON a.id = s.incarnation JOIN zlock_setting g
            JOIN zlock_incarnation i ON {{live}} AND i.restored = g.restored AND i.era = a.era WHERE s.id = p_session) THEN
        SELECT 3;
        COMMIT;
        LEAVE this;
    END IF;
    SELECT COUNT(*) INTO free FROM zlock_lane l WHERE l.session = p_session FOR UPDATE SKIP LOCKED;
    IF free < (SELECT COUNT(*) FROM zlock_lane l WHERE l.session = p_session) THEN
        SELECT 2;
        COMMIT;
        LEAVE this;
    END IF;
    DELETE FROM zlock_lane WHERE session = p_session;
    DELETE FROM zlock_beat WHERE session = p_session;
    DELETE FROM zlock_watched WHERE session = p_session;
    DELETE FROM zlock_receipt WHERE session = p_session;
    DELETE FROM zlock_session WHERE id = p_session;
    COMMIT;
    -- Each in the order of the stripes. What is left belongs to a session that is over.
    START TRANSACTION;
    OPEN wanted;
    {{remove wanted}}
    COMMIT;
    SET room = room - gone;
    START TRANSACTION;
    OPEN others;
    {{remove others}}
    COMMIT;
    SELECT gone >= 1000;
END
//
-- Raises the number of a lane, and returns it. It waits for the transactions that came over the lane.
CREATE PROCEDURE zlock_raise(IN p_session BIGINT, IN p_wire INT) SQL SECURITY DEFINER
BEGIN
    DECLARE own, live, v_era BIGINT;
    {{atomic}}
    {{check}}
    UPDATE zlock_lane SET number = number + 1 WHERE session = p_session AND wire = p_wire;
    IF ROW_COUNT() = 0 THEN
        {{over}}
    END IF;
    SET @zlock_live = live, @zlock_grants = NULL;
    SELECT l.number FROM zlock_lane l WHERE l.session = p_session AND l.wire = p_wire;
    COMMIT;
END
//
