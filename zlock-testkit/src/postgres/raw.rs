//! Sessions and nodes by the schema's functions, without a client that keeps them.

use std::time::Duration;

use tokio_postgres::{Client, Error, GenericClient};

/// Begins a session that nobody keeps alive. A create gives it its timeout.
///
/// # Panics
/// Panics if the server refuses it.
pub async fn begin_session(observer: &Client) -> i64 {
    let id = fastrand::i64(1..);
    let sql = "SELECT zlock.v1_begin($1, 1000, 600000, false)";
    observer.execute(sql, &[&id]).await.unwrap();
    id
}

/// A node to create.
#[derive(Clone, Copy, Debug)]
pub struct RawNode<'a> {
    /// Its session.
    pub session: i64,
    /// The path of its queue.
    pub path: &'a str,
    /// Its ID.
    pub id: &'a str,
    /// The timeout that the create gives to the session.
    pub ttl: Duration,
    /// Whether the session is at rest.
    pub renews: bool,
}

/// A node that a create has returned: its ID, its number and the beat of its session.
pub type RawListed = (String, i64, i64);

/// Creates a node as a client does: one at rest, which also renews its session, or one that has nodes already. Returns the last nodes of the queue, the own one first.
///
/// # Errors
/// The server's.
pub async fn create_node(
    connection: &impl GenericClient,
    node: RawNode<'_>,
) -> Result<Vec<RawListed>, Error> {
    let sql = "SELECT id, seq, beat FROM zlock.v1_create($1, $2, 'lock', $3::text::uuid, '', 0, false, $4, $5, false)";
    let ttl = i64::try_from(node.ttl.as_millis()).unwrap_or(i64::MAX);
    let rows = connection.query(sql, &[&node.session, &node.path, &node.id, &ttl, &node.renews]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

/// Deletes a node as a client does; with a session, so that a create with this ID has no effect from now on. Returns the outcome,
/// and the sessions that a client would wake.
///
/// # Errors
/// The server's.
pub async fn delete_node(
    connection: &impl GenericClient,
    path: &str,
    id: &str,
    void: Option<i64>,
) -> Result<(i32, Vec<i64>), Error> {
    let sql = "SELECT outcome, wake FROM zlock.v1_delete($1, $2::text::uuid, $3)";
    let row = connection.query_one(sql, &[&path, &id, &void]).await?;
    Ok((row.try_get(0)?, row.try_get::<_, Option<Vec<i64>>>(1)?.unwrap_or_default()))
}

/// Returns the SQLSTATE of a result that is an error of the server.
///
/// # Panics
/// Panics if it is none.
pub fn sqlstate<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().code().expect("an error of the server").code().to_owned()
}
