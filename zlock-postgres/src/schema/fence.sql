-- For users' own transactions: fails unless the node exists, and keeps it from being deleted or relabelled until the
-- transaction ends. The parameter is the node's ID, or its ID and its label, as a text, so that every driver can pass it.
CREATE OR REPLACE FUNCTION zlock.fence(p_node text)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM zlock.node n
        WHERE n.id = split_part(p_node, ' ', 1)::uuid AND split_part(p_node, ' ', 2) IN ('', n.label) FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lock is not held any more: there is no node % with that label', p_node USING ERRCODE = 'ZL003';
    END IF;
END $$;
