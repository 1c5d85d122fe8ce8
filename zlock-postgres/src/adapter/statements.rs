//! The statements of the ledger: each is one call, which is a transaction of its own.

use tokio_postgres::types::Type;

use crate::connection::statement::{Statement, statements};

statements! {
    VERSION = "SELECT zlock.version()" ();
    SALT = "SELECT zlock.v2_salt()" ();
    BEGIN = "SELECT * FROM zlock.v2_begin($1, $2, $3, $4)" (INT8, INT8, INT8, TEXT);
    BEAT = "SELECT * FROM zlock.v2_beat($1, $2, $3, $4, $5, $6, $7)" (INT8, INT8, INT8, BYTEA_ARRAY, INT8, INT8, INT8);
    NODES = "SELECT * FROM zlock.v2_nodes($1)" (INT8);
    SWEEP = "SELECT zlock.v2_sweep($1, $2, $3)" (INT8, INT8, BYTEA_ARRAY);
    LOOK = "SELECT * FROM zlock.v2_look($1)" (INT8_ARRAY);
    SILENT = "SELECT * FROM zlock.v2_silent($1)" (INT8);
    SETUP = "SELECT * FROM zlock.v2_setup()" ();
    SET_CLASS = "SELECT zlock.v2_set_class($1)" (TEXT);
    RESTORED = "SELECT zlock.restored($1)" (INT8);
    WATCHED = "SELECT zlock.v2_watched($1, $2, $3, $4, $5)" (INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY);
    END = "SELECT * FROM zlock.v2_end($1, $2, $3)" (INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY);
    READ = "SELECT * FROM zlock.v2_read($1, $2, $3, $4, $5, $6, $7, $8)"
        (INT8, BYTEA, BYTEA, BYTEA, INT8, INT8, INT8, BOOL);
    CHANGED = "SELECT * FROM zlock.v2_changed($1, $2, $3, $4, $5, $6)"
        (INT8, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY);
    RAISE = "SELECT * FROM zlock.v2_raise($1, $2)" (INT8, INT4);
    DELETE = "SELECT * FROM zlock.v2_delete($1, $2, $3, $4)" (INT8, INT8, BYTEA_ARRAY, INT4_ARRAY);
    APPEND = "SELECT * FROM zlock.v2_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
        (INT8, INT8, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT4_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, BYTEA_ARRAY,
            INT8_ARRAY, INT8_ARRAY);
    EXECUTE = "SELECT * FROM zlock.v2_execute($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
        (INT8, INT4, INT8, INT4_ARRAY, INT4_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT4_ARRAY, INT4_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY,
            INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY, BYTEA_ARRAY);
    WAKE = "SELECT zlock.v2_wake($1, $2, $3, $4, $5, $6, $7)"
        (INT8, BYTEA_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY);
}
