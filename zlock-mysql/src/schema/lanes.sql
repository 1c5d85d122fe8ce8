-- Appends a node to a queue, unless that was done before. Returns 1 with it if nobody is before it, or else 0 with each of the last p_limit
-- nodes up to it, or with each node if that is the largest number, the last one first; 4 in quiet time; nothing if there is another such node.
-- What is before it is read after the commit: that can only have become less.
CREATE PROCEDURE zlock_append(IN p_session BIGINT, IN p_lane BIGINT, IN p_id BINARY(16), IN p_scope BINARY(16), IN p_stripe INT, IN p_path BLOB,
    IN p_name BLOB, IN p_label VARBINARY(1024), IN p_data LONGBLOB, IN p_floor BIGINT, IN p_limit BIGINT) SQL SECURITY DEFINER
this: BEGIN
    DECLARE number, num, before_it, v_made BIGINT;
    DECLARE p_wire INT DEFAULT 0;
    -- It exists.
    DECLARE EXIT HANDLER FOR 1062
    BEGIN
        ROLLBACK;
        SET num = NULL;
        SELECT e.created INTO num FROM zlock_entry e WHERE e.id = p_id AND e.session = p_session;
        {{before it}}
    END;
    {{atomic}}
    {{enter_fast_lane}}
    IF @zlock_grants IS NULL THEN
        SELECT 4;
        COMMIT;
        LEAVE this;
    END IF;
    SELECT t.last + 1, t.living, {{now}} INTO num, before_it, v_made FROM zlock_stripe t WHERE t.n = p_stripe FOR UPDATE;
    INSERT INTO zlock_entry (id, scope, stripe, created, changed, session, made, kind, label, path, name, data)
        VALUES (p_id, p_scope, p_stripe, num, num, p_session, v_made, 0, p_label, p_path, p_name, p_data);
    UPDATE zlock_stripe SET last = num, living = before_it + 1 WHERE n = p_stripe;
    COMMIT;
    IF before_it = 0 THEN
        SELECT 1, p_name, p_name, num, num, p_session, p_label, 0, v_made;
    ELSE
        {{before it}}
    END IF;
END
//
-- Deletes a node. Returns 1 with it, or 3 with it if another transaction protects it.
CREATE PROCEDURE zlock_delete(IN p_session BIGINT, IN p_lane BIGINT, IN p_id BINARY(16), IN p_stripe INT) SQL SECURITY DEFINER
BEGIN
    DECLARE number, e_created, e_changed, e_session, e_writes, e_made BIGINT;
    DECLARE p_wire INT DEFAULT 0;
    DECLARE e_name BLOB;
    DECLARE e_label VARBINARY(1024);
    {{atomic}}
    {{enter_fast_lane}}
    UPDATE zlock_stripe SET living = living - 1 WHERE n = p_stripe;
    SELECT {{entry}} INTO e_name, e_created, e_changed, e_session, e_label, e_writes, e_made
        FROM zlock_entry e WHERE e.id = p_id FOR UPDATE SKIP LOCKED;
    IF e_created IS NOT NULL THEN
        DELETE FROM zlock_entry WHERE id = p_id;
        COMMIT;
        SELECT 1, e_name, e_name, e_created, e_changed, e_session, e_label, e_writes, e_made;
    ELSE
        ROLLBACK;
        SELECT 3, e.name, {{entry}} FROM zlock_entry e WHERE e.id = p_id;
    END IF;
END
//
-- Deletes nodes, and then appends nodes, each to a queue; p_stripes has the locks of these in their order. Returns 1 with each one that was
-- deleted, and 0 with each appended one and the one before it; or 4 if nothing was appended, in quiet time. It does nothing and fails if one
-- of the appended nodes exists, or another transaction protects a deleted one.
CREATE PROCEDURE zlock_queue(IN p_session BIGINT, IN p_lane BIGINT, IN p_stripes LONGTEXT CHARACTER SET ascii,
    IN p_gone LONGTEXT CHARACTER SET ascii, IN p_new LONGTEXT CHARACTER SET ascii, IN p_text LONGBLOB) SQL SECURITY DEFINER
this: BEGIN
    DECLARE number, found, free, hit BIGINT;
    DECLARE p_wire INT DEFAULT 0;
    {{atomic}}
    {{enter_fast_lane}}
    {{stripes}}
    IF p_gone <> '[]' THEN
        SELECT COUNT(e.id) INTO free FROM {{gone nodes}} FOR UPDATE SKIP LOCKED;
        SELECT COUNT(e.id) INTO found FROM {{gone nodes}};
        IF free < found THEN
            {{busy}}
        END IF;
        SELECT 1, e.name, {{entry}} FROM {{gone nodes}};
        UPDATE (SELECT e.stripe, COUNT(*) AS n FROM {{gone nodes}} GROUP BY e.stripe) c STRAIGHT_JOIN zlock_stripe t ON t.n = c.stripe
            SET t.living = t.living - c.n;
        DELETE e FROM {{gone nodes}};
    END IF;
    IF p_new = '[]' THEN
        COMMIT;
        LEAVE this;
    END IF;
    IF @zlock_grants IS NULL THEN
        SELECT 4;
        COMMIT;
        LEAVE this;
    END IF;
    UPDATE (SELECT x.stripe, COUNT(*) AS n FROM {{new nodes}} GROUP BY x.stripe) c STRAIGHT_JOIN zlock_stripe t ON t.n = c.stripe
        SET t.last = t.last + c.n, t.living = t.living + c.n;
    INSERT INTO zlock_entry (id, scope, stripe, created, changed, session, made, kind, label, path, name, data)
        SELECT UNHEX(x.id), UNHEX(x.scope), x.stripe, t.last - x.behind, t.last - x.behind, p_session, {{now}}, 0,
            SUBSTRING(p_text, x.label, x.label_size), SUBSTRING(p_text, x.path, x.path_size), SUBSTRING(p_text, x.name, x.name_size),
            SUBSTRING(p_text, x.data, x.data_size)
        FROM {{new nodes}} STRAIGHT_JOIN zlock_stripe t ON t.n = x.stripe;
    COMMIT;
    SELECT 0, o.name, {{entry}} FROM {{new nodes}} STRAIGHT_JOIN zlock_entry o ON o.id = UNHEX(x.id) STRAIGHT_JOIN zlock_stripe t ON t.n = o.stripe
        STRAIGHT_JOIN zlock_entry e FORCE INDEX (scope) ON e.scope = o.scope AND e.created <= o.created AND e.created >= IF(t.living = 1, o.created,
            COALESCE((SELECT p.created FROM zlock_entry p FORCE INDEX (scope) WHERE p.scope = o.scope AND p.created >= x.floor
                AND p.created < o.created ORDER BY p.created DESC LIMIT 1), o.created))
        ORDER BY e.created DESC;
END
//
-- Executes the steps of transactions, each in phases: locks, conditions, writes, reads. So one that is busy, or whose condition
-- fails, has no effect. Returns, for each step by its place: 0 with an entry that was read, 1 with one that was written
-- or deleted, 2 if a condition failed, with the entry that it found, 3 if another transaction holds what it needs, 4 in quiet time,
-- or 5 if the session has to sweep first. The texts of all steps are in one, in which each has its place and length.
--
-- The locks of the scopes are taken first, in their order. Whoever has one waits for nobody but, with patience, for entries before that.
CREATE PROCEDURE zlock_execute(IN p_session BIGINT, IN p_wire INT, IN p_lane BIGINT, IN p_stripes LONGTEXT CHARACTER SET ascii,
    IN p_steps LONGTEXT CHARACTER SET ascii, IN p_text LONGBLOB) SQL SECURITY DEFINER
BEGIN
    DECLARE own, live, v_era, number, other, other_era, num, up_to BIGINT;
    DECLARE grants, is_good, is_over TINYINT;
    DECLARE done, hit INT DEFAULT 0;
    DECLARE tx INT DEFAULT -1;
    DECLARE o_n, o_tx, o_op, o_stripe, o_kind, o_path, o_path_size, o_name, o_name_size, o_label, o_label_size, o_data, o_data_size INT;
    DECLARE o_id, o_scope VARCHAR(32) CHARACTER SET ascii;
    DECLARE o_a, o_b, o_c, e_created, e_changed, e_session, e_writes BIGINT;
    DECLARE v_id, v_scope BINARY(16);
    DECLARE status INT;
    DECLARE steps CURSOR FOR SELECT * FROM JSON_TABLE(p_steps, '$[*]' COLUMNS (n FOR ORDINALITY, tx INT PATH '$.t', op INT PATH '$.o',
        id VARCHAR(32) PATH '$.i', scope VARCHAR(32) PATH '$.s', stripe INT PATH '$.l', kind INT PATH '$.k', a BIGINT PATH '$.a',
        b BIGINT PATH '$.b', c BIGINT PATH '$.c', path INT PATH '$.p[0]', path_size INT PATH '$.p[1]', name INT PATH '$.n[0]',
        name_size INT PATH '$.n[1]', label INT PATH '$.g[0]', label_size INT PATH '$.g[1]', data INT PATH '$.d[0]',
        data_size INT PATH '$.d[1]')) x;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;
    {{atomic}}
    {{enter_lane}}
    IF p_wire > 0 THEN
        -- What users' transactions protect is waited for before the locks for which others wait.
        SELECT COUNT(e.id) INTO hit FROM JSON_TABLE(p_steps, '$[*]' COLUMNS (op INT PATH '$.o', id VARCHAR(32) PATH '$.i', a BIGINT PATH '$.a')) x
            STRAIGHT_JOIN zlock_entry e ON e.id = UNHEX(x.id) WHERE x.op = 3 OR x.op = 2 AND NOT e.session <=> x.a FOR UPDATE;
    END IF;
    {{stripes}}
    OPEN steps;
    each_step: LOOP
        SET done = 0;
        FETCH steps INTO o_n, o_tx, o_op, o_id, o_scope, o_stripe, o_kind, o_a, o_b, o_c, o_path, o_path_size, o_name, o_name_size, o_label,
            o_label_size, o_data, o_data_size;
        IF done THEN
            LEAVE each_step;
        END IF;
        IF o_tx <> tx THEN
            SET tx = o_tx, is_over = 0, num = NULL, up_to = NULL;
        END IF;
        IF is_over THEN
            ITERATE each_step;
        END IF;
        SET status = NULL, v_id = UNHEX(o_id), v_scope = UNHEX(o_scope), is_good = 1;
        IF o_op IN (2, 3, 4) THEN
            -- An entry that is deleted, or replaced unless it is of the owner a; one that is updated; one that must exist until the commit.
            IF o_op = 4 THEN
                SELECT COUNT(*) INTO hit FROM zlock_entry e WHERE e.id = v_id {{share}} SKIP LOCKED;
            ELSE
                SELECT COUNT(*) INTO hit FROM zlock_entry e WHERE e.id = v_id FOR UPDATE SKIP LOCKED;
            END IF;
            IF hit = 0 AND EXISTS (SELECT 1 FROM zlock_entry e WHERE e.id = v_id AND e.scope = v_scope
                    AND (o_op > 2 OR NOT e.session <=> o_a)) THEN
                SET status = 3;
            END IF;
        ELSEIF o_op = 5 THEN
            IF NOT grants THEN
                SET status = 4;
            END IF;
        ELSEIF o_op = 10 THEN
            -- The session has no receipt in slot a of write b.
            SET num = NULL;
            SELECT r.number INTO num FROM zlock_receipt r WHERE r.session = p_session AND r.slot = o_a AND r.mark = o_b;
            IF num IS NOT NULL THEN
                SELECT o_n, 2, '', num, num, p_session, NULL, 0, 0, '';
                SET is_over = 1;
            END IF;
        ELSEIF o_op BETWEEN 11 AND 15 THEN
            SET e_created = NULL, e_changed = NULL, e_session = NULL, e_writes = NULL;
            SELECT e.created, e.changed, e.session, e.writes INTO e_created, e_changed, e_session, e_writes
                FROM zlock_entry e WHERE e.id = v_id AND e.scope = v_scope;
            IF o_op = 11 THEN
                SET is_good = e_created IS NULL;
            ELSEIF o_op = 12 THEN
                SET is_good = e_created <=> o_a AND e_changed <=> o_b;
            ELSEIF o_op = 13 THEN
                SET is_good = e_writes <=> o_a;
            ELSEIF o_op = 14 THEN
                SET is_good = e_session <=> p_session;
            ELSE
                -- It exists, and its session is of the live incarnation, or at least of its era.
                SET is_good = e_created <=> o_a, other = NULL, other_era = NULL;
                IF e_session IS NOT NULL THEN
                    SELECT i.id, i.era INTO other, other_era FROM zlock_session s JOIN zlock_incarnation i ON i.id = s.incarnation
                        WHERE s.id = e_session;
                    IF NOT other_era <=> v_era THEN
                        SET is_good = 0, v_id = NULL;
                    ELSEIF is_good AND other <> live THEN
                        SET status = 5;
                    END IF;
                END IF;
            END IF;
            IF NOT is_good THEN
                SELECT o_n, 2, e.name, e.created, e.changed, e.session, e.label, e.writes, e.made, e.data
                    FROM (SELECT 1) x LEFT JOIN zlock_entry e ON e.id = v_id AND e.scope = v_scope;
                SET is_over = 1;
            END IF;
        ELSEIF o_op = 20 THEN
            SET e_created = NULL, e_session = NULL;
            SELECT e.created, e.session INTO e_created, e_session FROM zlock_entry e WHERE e.id = v_id;
            -- The owner is a.
            IF e_created IS NULL OR NOT e_session <=> o_a THEN
                {{number}}
                IF e_created IS NOT NULL THEN
                    DELETE FROM zlock_entry WHERE id = v_id;
                    UPDATE zlock_stripe SET living = living - 1 WHERE n = o_stripe;
                END IF;
                INSERT INTO zlock_entry (id, scope, stripe, created, changed, session, made, kind, label, path, name, data)
                    VALUES (v_id, v_scope, o_stripe, num, num, o_a, {{now}}, o_kind, SUBSTRING(p_text, o_label, o_label_size),
                        SUBSTRING(p_text, o_path, o_path_size), SUBSTRING(p_text, o_name, o_name_size), SUBSTRING(p_text, o_data, o_data_size));
                UPDATE zlock_stripe SET living = living + 1 WHERE n = o_stripe;
                SET e_created = num;
            END IF;
            SET up_to = e_created;
            SELECT o_n, 1, {{entry}}, '' FROM zlock_entry e WHERE e.id = v_id;
        ELSEIF o_op = 21 THEN
            {{number}}
            UPDATE zlock_entry e SET e.label = COALESCE(SUBSTRING(p_text, o_label, o_label_size), e.label),
                e.data = COALESCE(SUBSTRING(p_text, o_data, o_data_size), e.data), e.changed = num, e.writes = e.writes + (o_data IS NOT NULL)
                WHERE e.id = v_id AND e.scope = v_scope;
            SELECT o_n, 1, {{entry}}, '' FROM zlock_entry e WHERE e.id = v_id AND e.scope = v_scope;
        ELSEIF o_op = 22 THEN
            {{number}}
            REPLACE INTO zlock_receipt (session, slot, mark, number) VALUES (p_session, o_a, o_b, num);
        ELSEIF o_op = 23 THEN
            SELECT o_n, 1, {{entry}}, '' FROM zlock_entry e WHERE e.id = v_id AND e.scope = v_scope;
            DELETE FROM zlock_entry WHERE id = v_id AND scope = v_scope;
            IF ROW_COUNT() > 0 THEN
                UPDATE zlock_stripe SET living = living - 1 WHERE n = o_stripe;
            END IF;
        ELSEIF o_op IN (30, 40) THEN
            -- With a 4, with the data.
            SELECT o_n, 0, {{entry}}, IF(o_op = 40, e.data, '') FROM zlock_entry e WHERE e.id = v_id AND e.scope = v_scope;
        ELSEIF o_op IN (31, 41) THEN
            -- The last b from number a to c, or to the entry that was appended or found.
            SET o_c = COALESCE(o_c, up_to, 9223372036854775807), o_b = COALESCE(o_b, 9223372036854775807);
            SELECT o_n, 0, {{entry}}, IF(o_op = 41, e.data, '') FROM zlock_entry e FORCE INDEX (scope)
                WHERE e.scope = v_scope AND e.created >= o_a AND e.created <= o_c ORDER BY e.created DESC LIMIT o_b;
        END IF;
        IF status IS NOT NULL THEN
            SELECT o_n, status;
            SET is_over = 1;
        END IF;
    END LOOP;
    CLOSE steps;
    COMMIT;
END
//
