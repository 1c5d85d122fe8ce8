-- Clients may call these functions, and nothing else: make their users members of the role zlock_user.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'zlock_user') THEN
        CREATE ROLE zlock_user NOLOGIN;
    END IF;
END $$;
GRANT USAGE ON SCHEMA zlock TO zlock_user;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA zlock FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zlock.version, zlock.fence, zlock.locks, zlock.jobs, zlock.restored, zlock.v2_salt, zlock.v2_setup, zlock.v2_set_class,
    zlock.v2_begin, zlock.v2_beat, zlock.v2_nodes, zlock.v2_sweep, zlock.v2_look, zlock.v2_silent, zlock.v2_watched, zlock.v2_end, zlock.v2_raise,
    zlock.v2_delete, zlock.v2_append, zlock.v2_execute, zlock.v2_wake, zlock.v2_read, zlock.v2_changed TO zlock_user;
