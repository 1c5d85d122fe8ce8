//! `zlock ls`: lists the locks below a path.

use std::process::ExitCode;

use serde_json::json;
use zlock::Client;

use crate::args::Below;
use crate::exit::Failure;
use crate::output::{print_json, print_table};
use crate::store::Target;

pub(crate) async fn ls(args: Below) -> Result<ExitCode, Failure> {
    let target = Target::of(&args.store)?;
    // Connecting first: its errors say what is wrong with each server.
    let store = target.connect().await?;
    let mut paths = target.locks_below(args.prefix.as_ref()).await?;
    paths.sort();
    let client = Client::new(store.backend.clone());
    let mut rows = Vec::new();
    for path in paths {
        let participants = client.mutex(&path)?.participants().await?;
        let holders = participants.iter().filter(|participant| participant.is_holder).count();
        // An empty queue: the lock was released meanwhile.
        if !participants.is_empty() {
            rows.push((path, holders, participants.len() - holders));
        }
    }
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    if args.format.json {
        let locks: Vec<_> = rows
            .iter()
            .map(|(path, holders, waiters)| json!({ "lock": path.as_str(), "holders": holders, "waiters": waiters }))
            .collect();
        print_json(&json!({ "locks": locks }));
    } else {
        let row = |(path, holders, waiters): &(zlock::LockPath, usize, usize)| {
            [holders.to_string(), waiters.to_string(), path.to_string()]
        };
        print_table(["HOLDERS", "WAITERS", "LOCK"], &rows.iter().map(row).collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}
