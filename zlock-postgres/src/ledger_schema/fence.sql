-- For users' own transactions: fails unless the node exists, and keeps it from being deleted until the transaction ends. The
-- parameter is the node's ID, as a text, so that every driver can pass it. With a label behind it, the node has that label until then.
CREATE OR REPLACE FUNCTION zlock.fence(p_node text)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    the_id bytea; the_label text := split_part(p_node, ' ', 2); owner bigint; own bigint; live bigint;
BEGIN
    SELECT substr(sha256(g.salt || '\x00' || convert_to(split_part(p_node, ' ', 1), 'UTF8')), 1, 16) INTO the_id FROM zlock.setting g;
    IF the_label = '' THEN
        SELECT e.session INTO owner FROM zlock.entry e WHERE e.id = the_id FOR KEY SHARE;
    ELSE
        SELECT e.session INTO owner FROM zlock.entry e WHERE e.id = the_id AND e.label = the_label FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lock is not held any more: there is no node % with that label', p_node USING ERRCODE = 'ZL003';
    END IF;
    SELECT s.incarnation INTO own FROM zlock.session s WHERE s.id = owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lock is not held any more: the session of node % is over', p_node USING ERRCODE = 'ZL003';
    END IF;
    SELECT {{live}} INTO live FROM zlock.life c;
    IF own IS DISTINCT FROM live THEN
        PERFORM FROM zlock.incarnation a JOIN zlock.incarnation b ON b.era <> a.era WHERE a.id = own AND b.id = live;
        IF FOUND THEN
            RAISE EXCEPTION 'the lock is not held any more: the server has lost commits since node % was created', p_node
                USING ERRCODE = 'ZL003';
        END IF;
        -- It may be one whose deletion a crash has undone.
        RAISE EXCEPTION 'the server has restarted, and the session of node % has not seen that yet', p_node USING ERRCODE = 'ZL010',
            HINT = 'repeat the transaction';
    END IF;
END $$;
