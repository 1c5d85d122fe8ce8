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

pub(crate) use statements;
