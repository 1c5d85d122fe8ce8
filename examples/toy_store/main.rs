//! A backend for another store, complete and as short as it can be: the first thing to read before writing one.
//!
//! `server.rs` is the store, `backend.rs` the backend. `tests/toy_store.rs` runs the suites on it.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "an example has no users")]

mod backend;
mod server;

use std::process::ExitCode;

use zlock::Client;

use self::backend::ToyBackend;
use self::server::Server;

#[tokio::main]
async fn main() -> zlock::Result<ExitCode> {
    let server = Server::default();
    let clients = [(); 2].map(|()| Client::new(ToyBackend::connect(&server)));
    let mut workers = tokio::task::JoinSet::new();
    for (client, number) in clients.iter().cloned().zip(1..) {
        workers.spawn(async move {
            let guard = client.mutex("/app/lock")?.acquire().await?;
            println!("client {number} holds the lock, with fencing token {}", guard.fencing_token());
            guard.release().await
        });
    }
    while let Some(released) = workers.join_next().await {
        released.expect("no worker panics")?;
    }
    for client in clients {
        client.close().await?;
    }
    Ok(ExitCode::SUCCESS)
}
