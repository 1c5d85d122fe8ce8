-- The entries of a scope: the one with this ID, or the last ones between two numbers.
CREATE PROCEDURE zlock_read(IN p_session BIGINT, IN p_id BINARY(16), IN p_scope BINARY(16), IN p_floor BIGINT, IN p_up_to BIGINT,
    IN p_limit BIGINT, IN p_data TINYINT) SQL SECURITY DEFINER
BEGIN
    DECLARE own, live, v_era BIGINT;
    -- Before the read: what was lost with the history must not look like a lock that is free.
    {{check}}
    IF p_id IS NOT NULL THEN
        SELECT {{entry}}, IF(p_data, e.data, '') FROM zlock_entry e WHERE e.id = p_id AND e.scope = p_scope;
    ELSE
        SELECT {{entry}}, IF(p_data, e.data, '') FROM zlock_entry e FORCE INDEX (scope)
            WHERE e.scope = p_scope AND e.created >= p_floor AND e.created <= p_up_to ORDER BY e.created DESC LIMIT p_limit;
    END IF;
END
//
-- Returns the live incarnation, and the places of those marks that differ from what is there. A mark is of an entry with this ID, or of a
-- whole scope.
CREATE PROCEDURE zlock_changed(IN p_session BIGINT, IN p_marks LONGTEXT CHARACTER SET ascii) SQL SECURITY DEFINER
BEGIN
    DECLARE own, live, v_era BIGINT;
    {{check}}
    SELECT live;
    SELECT m.n FROM JSON_TABLE(p_marks, '$[*]' COLUMNS (n FOR ORDINALITY, id VARCHAR(32) PATH '$.i',
            scope VARCHAR(32) PATH '$.s', count BIGINT PATH '$.c', changed BIGINT PATH '$.v')) m
        WHERE IF(m.id IS NOT NULL,
            m.changed <> COALESCE((SELECT e.changed FROM zlock_entry e WHERE e.id = UNHEX(m.id) AND e.scope = UNHEX(m.scope)), 0),
            (SELECT COUNT(*) <> m.count OR COALESCE(MAX(e.changed), 0) <> m.changed FROM zlock_entry e FORCE INDEX (scope)
                WHERE e.scope = UNHEX(m.scope)));
END
//
