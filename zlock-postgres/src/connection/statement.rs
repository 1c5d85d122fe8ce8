//! The statements that are sent: each is one call, which is a transaction of its own.

use tokio_postgres::types::Type;

/// A statement, with the types of its parameters.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sql: &'static str,
    pub(crate) types: &'static [Type],
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:literal ($($type:ident),*);)*) => {
        $($(#[$doc])* pub(crate) static $name: Statement = Statement { sql: $sql, types: &[$(Type::$type),*] };)*
    };
}

statements! {
    BEGIN = "SELECT zlock.v1_begin($1, $2, $3, $4)" (INT8, INT8, INT8, BOOL);
    BEAT = "SELECT outcome, nodes, rests FROM zlock.v1_beat($1, $2, $3, $4, $5)" (INT8, INT8, INT8, BOOL, TEXT_ARRAY);
    END = "SELECT zlock.v1_end($1)" (INT8);
    EXPIRE = "SELECT zlock.v1_expire($1, $2)" (INT8, INT8);
    SUSPECT = "SELECT zlock.v1_suspect($1)" (INT8);
    OVERDUE = "SELECT zlock.v1_overdue()" ();
    CLEAN = "SELECT node, wake FROM zlock.v1_clean($1)" (INT8);
    CREATE = "SELECT seq, label, id, session, beat, ttl, state \
              FROM zlock.v1_create($1, $2, $3, $4::text::uuid, $5, $6, $7, $8, $9, $10)"
        (INT8, TEXT, TEXT, TEXT, BYTEA, INT8, BOOL, INT8, BOOL, BOOL);
    CHILDREN = "SELECT seq, label, id, session, beat, ttl, state \
                FROM zlock.v1_children($1, $2, $3, $4, $5, $6)"
        (INT8, TEXT, INT8, INT8, INT8, BOOL);
    NODE = "SELECT seq, label, session, beat, ttl, state, version, data, created \
            FROM zlock.v1_node($1, $2, $3::text::uuid, $4)" (INT8, TEXT, TEXT, BOOL);
    DELETE = "SELECT outcome, wake FROM zlock.v1_delete($1, $2::text::uuid, $3)" (TEXT, TEXT, INT8);
    HAND_OVER = "SELECT outcome, wake FROM zlock.v1_hand_over($1, $2, $3::text::uuid, $4, $5)"
        (INT8, TEXT, TEXT, TEXT_ARRAY, BOOL);
    RELABEL = "SELECT outcome, wake FROM zlock.v1_relabel($1, $2, $3::text::uuid, $4, $5, $6)"
        (INT8, TEXT, TEXT, TEXT, INT8, BOOL);
    SET_DATA = "SELECT zlock.v1_set_data($1, $2::text::uuid, $3)" (TEXT, TEXT, BYTEA);
    REPLACE_DATA = "SELECT session, writes, had FROM zlock.v1_replace_data($1, $2::text::uuid, $3, $4)"
        (TEXT, TEXT, INT8, BYTEA);
    POLL = "SELECT kind, key, label, version, session, beat, ttl, state FROM zlock.v1_poll($1, $2, $3, $4, $5)"
        (INT8, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, BOOL);
    /// A statement of its own: NOTIFY takes a lock of the whole server until its transaction ends.
    NOTIFY = "SELECT pg_notify('zlock_' || s, p) FROM unnest($1, $2) AS w (s, p)" (INT8_ARRAY, TEXT_ARRAY);
    WRITE_VALUE = "SELECT outcome, created, number, data, wake \
                   FROM zlock.v1_write_value($1, $2, $3, $4, $5, $6, $7, $8, $9::text::uuid, $10, $11, $12)"
        (INT8, TEXT, INT4, INT8, INT8, INT8, BYTEA, TEXT, TEXT, INT8, INT4, BOOL);
    VOID_WRITE = "SELECT zlock.v1_void_write($1, $2, $3, $4)" (INT8, TEXT, INT4, INT8);
    VALUE = "SELECT created, number, data FROM zlock.v1_value($1)" (TEXT);
    JOIN = "SELECT outcome, number, owner, state FROM zlock.v1_join($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        (INT8, TEXT, TEXT, BYTEA, BOOL, INT4, INT8, INT8, BOOL, BOOL);
    LEAVE = "SELECT zlock.v1_leave($1, $2, $3, $4, $5)" (INT8, TEXT, TEXT, INT4, INT8);
    MEMBERS = "SELECT path, name, number, data, session, beat, ttl, state FROM zlock.v1_members($1, $2, $3, $4)"
        (INT8, TEXT_ARRAY, BOOL, BOOL);
    VERSION = "SELECT zlock.version()" ();
}
