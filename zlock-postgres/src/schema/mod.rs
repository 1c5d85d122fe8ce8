//! The database's schema: tables that only the functions use, and functions that are each one operation.

/// The version that this client needs.
pub(crate) const VERSION: i32 = 1;

/// The tables and functions.
pub(crate) const OBJECTS: &str = concat!(
    include_str!("tables.sql"),
    include_str!("sessions.sql"),
    include_str!("queues.sql"),
    include_str!("values.sql"),
    include_str!("groups.sql"),
    include_str!("fence.sql"),
    include_str!("locks.sql"),
);

/// Returns the SQL that an operator runs once in a database, as the owner of what it creates: the schema `zlock`, and the role
/// `zlock_user`, whose members may call its functions and nothing else. Running it again changes nothing.
///
/// # Examples
/// ```
/// let sql = zlock_postgres::schema_sql();
/// assert!(sql.contains("CREATE SCHEMA IF NOT EXISTS zlock;"));
/// ```
#[must_use]
pub fn schema_sql() -> String {
    [OBJECTS, include_str!("roles.sql")].concat()
}
