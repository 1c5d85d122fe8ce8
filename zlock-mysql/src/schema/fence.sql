-- For users' own transactions: fails unless the node exists, and keeps it from being deleted until the transaction ends. The parameters are
-- the node's ID, and the label that it has to have until then, or an empty text for any.
CREATE PROCEDURE zlock_fence(IN p_node VARBINARY(255), IN p_label VARBINARY(1024)) SQL SECURITY DEFINER
BEGIN
    DECLARE owner, own, own_era, live, v_era BIGINT;
    IF @zlock_server IS NULL THEN
        CALL zlock_here();
    END IF;
    SELECT e.session INTO owner FROM zlock_setting g STRAIGHT_JOIN zlock_entry e
        ON e.id = UNHEX(LEFT(SHA2(CONCAT(g.salt, x'00', p_node), 256), 32)) AND (p_label = '' OR e.label = p_label) LOCK IN SHARE MODE;
    -- Without a lock, which would hold up more than the node's end. Whoever sees an old state here has the node all the same.
    SELECT a.id, a.era INTO own, own_era FROM zlock_session s JOIN zlock_beat b ON b.session = s.id
        JOIN zlock_incarnation a ON a.id = s.incarnation WHERE s.id = owner;
    SELECT i.id, i.era INTO live, v_era FROM zlock_setting g JOIN zlock_incarnation i ON {{live}} AND i.restored = g.restored;
    IF own IS NULL OR NOT own_era <=> v_era THEN
        SIGNAL SQLSTATE 'ZL003' SET MESSAGE_TEXT = 'the lock is not held any more: its node is gone, or its session is over';
    END IF;
    IF own <> live THEN
        SIGNAL SQLSTATE 'ZL010' SET MESSAGE_TEXT = 'the server has restarted, and the session of the node has not seen that yet: repeat the transaction';
    END IF;
END
//
