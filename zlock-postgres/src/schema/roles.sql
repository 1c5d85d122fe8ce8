-- Clients may call these functions, and nothing else: make their users members of the role zlock_user.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'zlock_user') THEN
        CREATE ROLE zlock_user NOLOGIN;
    END IF;
END $$;
GRANT USAGE ON SCHEMA zlock TO zlock_user;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA zlock FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zlock.version, zlock.fence, zlock.locks, zlock.jobs, zlock.v1_begin, zlock.v1_beat, zlock.v1_end,
    zlock.v1_expire, zlock.v1_suspect, zlock.v1_overdue, zlock.v1_clean, zlock.v1_create, zlock.v1_children, zlock.v1_node, zlock.v1_delete,
    zlock.v1_hand_over, zlock.v1_relabel, zlock.v1_set_data, zlock.v1_replace_data, zlock.v1_poll, zlock.v1_write_value,
    zlock.v1_void_write, zlock.v1_value, zlock.v1_join, zlock.v1_leave, zlock.v1_members TO zlock_user;
