//! A service with a lock, and its tests on mem.
#![allow(clippy::unwrap_used, reason = "tests")]

// ANCHOR: service
use std::time::Duration;

use zlock::{Client, FencedStorage, LockTemplate, Result};

/// Hands out invoice numbers without gaps. The counter is a row with a fence.
struct Invoices {
    locks: LockTemplate,
}

impl Invoices {
    fn new(client: &Client) -> Result<Self> {
        let locks = client.lock_template("/billing/locks")?.with_wait(Duration::from_secs(2), 1)?;
        Ok(Invoices { locks })
    }

    async fn next<S>(&self, counter: &S) -> Result<u32, S::Error>
    where
        S: FencedStorage<Value = u32>,
    {
        self.locks
            .execute_fallible("invoice-number", async |lock| {
                let next = counter.read(lock.fencing_token()).await? + 1;
                tokio::time::sleep(Duration::from_millis(100)).await; // the slow part
                counter.write(lock.fencing_token(), next).await?;
                Ok(next)
            })
            .await
    }
}
// ANCHOR_END: service

// ANCHOR: exclusion
use zlock::mem::{FencedRow, MemServer};

#[tokio::test(start_paused = true)]
async fn two_processes_draw_different_numbers() -> Result<()> {
    let server = MemServer::new();
    let counter = FencedRow::new(0);
    // Each client has a session of its own, as a process would.
    let one = Invoices::new(&Client::new(server.connect()))?;
    let two = Invoices::new(&Client::new(server.connect()))?;
    let (a, b) = tokio::join!(one.next(&counter), two.next(&counter));
    let mut drawn = [a?, b?];
    drawn.sort_unstable(); // either may come first
    assert_eq!(drawn, [1, 2]);
    Ok(())
}
// ANCHOR_END: exclusion

// ANCHOR: busy
use zlock::ErrorKind;

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_taken_for_too_long_is_an_error() -> Result<()> {
    let server = MemServer::new();
    let other = Client::new(server.connect());
    let held = other.mutex("/billing/locks/invoice-number")?.acquire().await?;

    let invoices = Invoices::new(&Client::new(server.connect()))?;
    let error = invoices.next(&FencedRow::new(0)).await.unwrap_err(); // after 2 s of paused time
    assert_eq!(error.kind(), ErrorKind::Busy);
    held.release().await?;
    Ok(())
}
// ANCHOR_END: busy

// ANCHOR: lost
#[tokio::test(start_paused = true)]
async fn a_lost_lock_cancels_the_work() -> Result<()> {
    let server = MemServer::new();
    let backend = server.connect();
    let link = backend.link();
    let invoices = Invoices::new(&Client::new(backend))?;
    let counter = FencedRow::new(7);

    let (drawn, ()) = tokio::join!(invoices.next(&counter), async {
        tokio::time::sleep(Duration::from_millis(50)).await; // in the middle of the slow part
        link.expire(); // the server takes the process for dead
    });
    assert!(drawn.unwrap_err().is_lock_lost());
    assert_eq!(counter.value(), 7); // the closure did not get to its write

    // The client has a new session by itself, and the service works again.
    assert_eq!(invoices.next(&counter).await?, 8);
    Ok(())
}
// ANCHOR_END: lost

// ANCHOR: outage
#[tokio::test(start_paused = true)]
async fn a_short_outage_goes_unnoticed() -> Result<()> {
    let server = MemServer::new();
    let invoices = Invoices::new(&Client::new(server.connect()))?;
    let counter = FencedRow::new(0);

    let (drawn, ()) = tokio::join!(invoices.next(&counter), async {
        server.stop();
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.start();
    });
    assert_eq!(drawn?, 1);
    Ok(())
}
// ANCHOR_END: outage

// ANCHOR: faults
use zlock::mem::{Fault, Operation};

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_leaves_nothing_behind() -> Result<()> {
    let server = MemServer::new();
    let client = Client::new(server.connect());
    // The server creates the node, but its answer never arrives.
    server.inject(Fault::lose_answer(Operation::Create));
    assert_eq!(Invoices::new(&client)?.next(&FencedRow::new(0)).await?, 1);
    assert!(server.names(&"/billing/locks/invoice-number".try_into()?).is_empty());
    assert_eq!(client.pending_cleanups(), 0);
    Ok(())
}
// ANCHOR_END: faults

// ANCHOR: late
#[tokio::test(start_paused = true)]
async fn a_late_write_is_refused() -> Result<()> {
    let server = MemServer::new();
    let backend = server.connect();
    let link = backend.link();
    let paused = Client::new(backend).mutex("/billing/locks/invoice-number")?.acquire().await?;
    link.expire(); // a session timeout later

    let (invoices, counter) = (Invoices::new(&Client::new(server.connect()))?, FencedRow::new(0));
    assert_eq!(invoices.next(&counter).await?, 1);
    let late = counter.write(paused.fencing_token(), 7).await.unwrap_err();
    assert!(late.is_lock_lost());
    assert_eq!(counter.value(), 1);
    Ok(())
}
// ANCHOR_END: late
