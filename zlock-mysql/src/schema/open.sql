-- What a client needs to know of the store before its first request. The last procedure: if it exists, so do the others.
CREATE PROCEDURE zlock_open() SQL SECURITY DEFINER
BEGIN
    {{atomic}}
    /*M!100600
    IF @@global.wsrep_on THEN
        SIGNAL SQLSTATE 'ZL016' SET MESSAGE_TEXT = 'the server is part of a Galera cluster, in which several servers accept writes: zlock needs one';
    END IF;
    */
    CALL zlock_here();
    IF NOT EXISTS (SELECT 1 FROM zlock_setting g) THEN
        CALL zlock_install();
    END IF;
    IF NOT EXISTS (SELECT 1 FROM zlock_setting g JOIN zlock_incarnation i ON {{live}} AND i.restored = g.restored) THEN
        CALL zlock_begin_incarnation();
    END IF;
    SELECT g.salt, g.version FROM zlock_setting g;
    COMMIT;
END
//
