//! A backend for another store, complete and as short as it can be: read it before you write one.
//!
//! `server.rs` is the store, `backend.rs` the backend, `values.rs` its values and `groups.rs` its groups. `tests/toy_store.rs` runs the
//! suites on it.

#![allow(missing_docs, unreachable_pub, reason = "an example has no users")]

mod backend;
mod groups;
mod server;
mod values;

use std::error::Error;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::Client;

use self::backend::ToyBackend;
use self::server::{Mode, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::default();
    let mut workers = JoinSet::new();
    for number in 1..=3 {
        let backend = ToyBackend::connect(&server);
        let connection = backend.connection();
        let client = Client::new(backend);
        workers.spawn(async move {
            let mutex = client.mutex("/app/lock")?;
            // There is a session once this is answered.
            mutex.participants().await?;
            // The answer to the create of one worker is lost. It tries again, and has its place only once.
            connection.mode.send_replace(if number == 2 { Mode::Mute } else { Mode::Up });
            let restore = async {
                sleep(Duration::from_millis(50)).await;
                connection.mode.send_replace(Mode::Up);
            };
            let (guard, ()) = tokio::join!(mutex.acquire(), restore);
            let guard = guard?;
            println!("worker {number} holds the lock, with fencing token {}", guard.fencing_token());
            guard.release().await?;
            client.close().await
        });
    }
    while let Some(closed) = workers.join_next().await {
        closed??;
    }
    // As users of the store have it: by URL.
    zlock::register("toy", server)?;
    let client = zlock::connect("toy://").await?;
    client.mutex("/app/lock")?.acquire().await?.release().await?;
    client.close().await?;
    Ok(())
}
