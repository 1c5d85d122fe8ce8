//! Waits on many bytes of paths: after a reconnection, a client must send all of them to its server.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::{Client, Result};

use super::told::stop_file;

/// More than 128 KiB of paths, which is the limit for one request of ZooKeeper's client library.
const WAITS: usize = 40;
const BYTES: usize = 4000;

/// Acquires locks that no other client uses, waits for each of them, and repeats that after a failure. The test is about the
/// session, whose changes the process records.
pub(crate) async fn run(client: Client, name: String, folder: PathBuf) {
    while !stop_file(&folder).exists() {
        // The session was lost, or no server responds.
        if let Err(error) = wait(&client, &name, &folder).await {
            assert!(!error.to_string().contains("bytes of paths"), "there is room for these waits: {error}");
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn wait(client: &Client, name: &str, folder: &std::path::Path) -> Result<()> {
    let (mut held, mut waits) = (Vec::new(), JoinSet::new());
    for number in 0..WAITS {
        let path = format!("/chaos/waits/{name}/{number}/");
        let lock = client.mutex(format!("{path:x<BYTES$}"))?;
        held.push(lock.acquire().await?);
        waits.spawn(async move { lock.acquire().await.map(drop) });
    }
    while held.iter().all(|guard| guard.is_held()) && !stop_file(folder).exists() {
        // A run without waits would prove nothing.
        if let Some(Ok(Err(error))) = waits.try_join_next() {
            return Err(error);
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
