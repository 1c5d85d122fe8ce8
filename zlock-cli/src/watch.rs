//! `zlock watch`: prints the changes of a lock as they happen.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use zlock::backend::Watch as Change;
use zlock::{Client, ErrorKind, LockPath, Participant};

use crate::args::Lock;
use crate::exit::{Failure, say};
use crate::output::{now, print, print_json, utc};
use crate::participant::{line, painted, state, to_json};
use crate::store::{Store, Target};

/// The pause between two attempts while the store does not respond.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn watch(args: Lock) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let mut known = Vec::new();
    loop {
        match look(&store, &client, &args.name).await {
            Ok((queue, change)) => {
                for (event, participant) in events(&known, &queue) {
                    show(event, participant, args.format.json)?;
                }
                known = queue;
                change.await;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::SessionLost) => {
                say(&format!("{error}; retrying"));
                sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the queue, and a watch that was set before the queue was read.
pub(crate) async fn look(
    store: &Store,
    client: &Client,
    path: &LockPath,
) -> zlock::Result<(Vec<Participant>, Change)> {
    let (_, change) = store.backend.children_with_watch(path).await?;
    Ok((client.mutex(path)?.participants().await?, change))
}

/// Returns the changes between two snapshots; clients that left come first.
fn events<'a>(before: &'a [Participant], after: &'a [Participant]) -> Vec<(&'static str, &'a Participant)> {
    let find = |queue: &'a [Participant], name| queue.iter().find(move |one| one.name == name);
    let left = before.iter().filter(|one| find(after, one.name.clone()).is_none()).map(|one| ("left", one));
    let changed = after
        .iter()
        .filter(|one| find(before, one.name.clone()).is_none_or(|was| was.is_holder != one.is_holder));
    left.chain(changed.map(|one| (state(one), one))).collect()
}

fn show(event: &str, participant: &Participant, json: bool) -> Result<(), Failure> {
    let time = utc(now());
    if !json {
        return print(&format!("{time} {} {}", painted(event), line(participant)));
    }
    let mut value = to_json(participant);
    if let Value::Object(fields) = &mut value {
        fields.insert("time".to_owned(), time.into());
        fields.insert("event".to_owned(), event.into());
    }
    print_json(&value)
}
