//! Fencing in SQL: tables that refuse a holder that has been overtaken.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use rusqlite::{Connection, OptionalExtension, Result, TransactionBehavior, params};
use zlock::mem::MemServer;
use zlock::{Client, FencingToken};

// ANCHOR: schema
const ORDERS: &str = "
    CREATE TABLE orders (
        id     INTEGER PRIMARY KEY,
        status TEXT    NOT NULL,
        fence  BLOB    NOT NULL DEFAULT x'000000000000000000000000'
    )";
// ANCHOR_END: schema

// ANCHOR: row
/// Reads an order under the lock. `None` if a later holder has been here, or if there is no such order.
fn status(db: &Connection, id: i64, token: FencingToken) -> Result<Option<String>> {
    db.query_row(
        "UPDATE orders SET fence = ?2 WHERE id = ?1 AND fence <= ?2 RETURNING status",
        params![id, token.to_be_bytes()],
        |row| row.get(0),
    )
    .optional()
}

/// Changes an order under the lock. `false` if a later holder has been here, or if there is no such order.
fn set_status(db: &Connection, id: i64, status: &str, token: FencingToken) -> Result<bool> {
    let changed = db.execute(
        "UPDATE orders SET status = ?3, fence = ?2 WHERE id = ?1 AND fence <= ?2",
        params![id, token.to_be_bytes(), status],
    )?;
    Ok(changed == 1)
}
// ANCHOR_END: row

// ANCHOR: fences
const FENCES: &str = "CREATE TABLE fences (lock TEXT PRIMARY KEY, token BLOB NOT NULL)";

/// Runs `work` in one transaction, unless a later holder of the lock has been here: then `None`.
fn fenced<T>(
    db: &mut Connection,
    lock: &str,
    token: FencingToken,
    work: impl FnOnce(&Connection) -> Result<T>,
) -> Result<Option<T>> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let admitted = transaction.execute(
        "INSERT INTO fences (lock, token) VALUES (?1, ?2)
         ON CONFLICT (lock) DO UPDATE SET token = excluded.token WHERE fences.token <= excluded.token",
        params![lock, token.to_be_bytes()],
    )?;
    if admitted == 0 {
        return Ok(None); // rolled back
    }
    let output = work(&transaction)?;
    transaction.commit()?;
    Ok(Some(output))
}
// ANCHOR_END: fences

// ANCHOR: paused
#[tokio::test(start_paused = true)]
async fn an_overtaken_holder_is_refused() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(ORDERS).unwrap();
    db.execute("INSERT INTO orders (id, status) VALUES (42, 'new')", []).unwrap();

    let server = MemServer::new();
    let backend = server.connect();
    let link = backend.link();
    let (first, second) = (Client::new(backend), Client::new(server.connect()));

    // The first holder reads, and is then paused: its session ends while it sleeps.
    let held = first.mutex("/orders/42").unwrap().acquire().await.unwrap();
    let token = held.fencing_token();
    assert_eq!(status(&db, 42, token).unwrap().as_deref(), Some("new"));
    link.expire();

    // The next holder does the work.
    let next = second.mutex("/orders/42").unwrap().acquire().await.unwrap();
    assert_eq!(status(&db, 42, next.fencing_token()).unwrap().as_deref(), Some("new"));
    assert!(set_status(&db, 42, "shipped", next.fencing_token()).unwrap());

    // The first one wakes up and writes what it meant to write.
    assert!(!set_status(&db, 42, "cancelled", token).unwrap());
    assert_eq!(status(&db, 42, next.fencing_token()).unwrap().as_deref(), Some("shipped"));
}
// ANCHOR_END: paused

/// A holder that has only read must not be overwritten by an earlier one either.
#[test]
fn a_read_counts() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(ORDERS).unwrap();
    db.execute("INSERT INTO orders (id, status) VALUES (42, 'new')", []).unwrap();
    let (old, new) = (FencingToken::new(7), FencingToken::new(8));
    assert!(status(&db, 42, new).unwrap().is_some());
    assert!(!set_status(&db, 42, "cancelled", old).unwrap());
    // Equal tokens pass: a holder may write as often as it likes.
    assert!(set_status(&db, 42, "shipped", new).unwrap());
    // Two holders that share a place differ in the turn.
    assert!(set_status(&db, 42, "shipped", new.with_turn(1)).unwrap());
    assert!(!set_status(&db, 42, "cancelled", new).unwrap());
}

#[test]
fn a_fence_covers_several_tables() {
    let mut db = Connection::open_in_memory().unwrap();
    db.execute_batch(FENCES).unwrap();
    db.execute_batch(
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, left INTEGER); INSERT INTO stock VALUES (1, 5)",
    )
    .unwrap();
    let take = |db: &Connection| db.execute("UPDATE stock SET left = left - 1 WHERE id = 1", []);
    let (old, new) = (FencingToken::new(7), FencingToken::new(8));
    assert_eq!(fenced(&mut db, "/stock/1", old, take).unwrap(), Some(1));
    assert_eq!(fenced(&mut db, "/stock/1", new, take).unwrap(), Some(1));
    assert_eq!(fenced(&mut db, "/stock/1", old, take).unwrap(), None);
    // Another lock has a fence of its own.
    assert_eq!(fenced(&mut db, "/stock/2", old, take).unwrap(), Some(1));
    let left: i64 = db.query_row("SELECT left FROM stock", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 2);
}
