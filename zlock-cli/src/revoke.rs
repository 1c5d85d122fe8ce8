//! `zlock revoke`: asks holders to release a lock, or removes one of them.

use std::process::ExitCode;

use serde_json::json;
use zlock::backend::{Deletion, Label, Target as Place};
use zlock::{Client, LockPath};

use crate::args::{Lock, Revoke};
use crate::exit::{Failure, checked};
use crate::output::{clean, print, print_json};
use crate::store::{Store, Target};

pub(crate) async fn revoke(args: Revoke) -> Result<ExitCode, Failure> {
    let Revoke { lock: Lock { store, format, name: path }, force, token } = args;
    let store = Target::of(&store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let (what, count) = match token.filter(|_| force) {
        Some(token) => ("removed", usize::from(remove(&store, &path, token).await?)),
        None => ("asked", ask(&store, &client, &path).await?),
    };
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    let printed = if format.json {
        print_json(&json!({ "lock": path.as_str(), what: count }))
    } else {
        print(&clean(&match (what, count) {
            ("asked", 0) => format!("{path}: nobody holds the lock"),
            ("asked", count) => format!("{path}: holders asked to release the lock: {count}"),
            (_, 0) => format!("{path}: no node has this token; see zlock who"),
            _ => format!("{path}: node removed"),
        }))
    };
    checked(count > 0, printed)
}

/// Asks the holders of a lock, or the leader of an election.
pub(crate) async fn ask(store: &Store, client: &Client, path: &LockPath) -> Result<usize, Failure> {
    let queue = store.backend.children(path, None).await?;
    if queue.first().is_some_and(|head| head.label == Label::Candidate) {
        return Ok(usize::from(client.election(path)?.request_step_down().await?.is_some()));
    }
    Ok(client.mutex(path)?.request_revocation().await?)
}

/// Removes the node with this token. Returns `true` if the node existed.
async fn remove(store: &Store, path: &LockPath, token: u64) -> Result<bool, Failure> {
    let backend = &store.backend;
    for node in backend.children(path, None).await?.into_vec() {
        let Some(data) = backend.data(path, &node).await? else { continue };
        if data.fencing_token.is_some_and(|found| found.number() == token) {
            let deletion = backend.delete(path, &Place::Node(node), None).await?;
            return Ok(deletion == Deletion::Deleted);
        }
    }
    Ok(false)
}
