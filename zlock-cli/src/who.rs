//! `zlock who`: shows the holders and waiters of a lock.

use std::process::ExitCode;

use serde_json::json;
use zlock::Client;

use crate::args::Lock;
use crate::exit::Failure;
use crate::output::{clean, print, print_json, print_table};
use crate::participant::{TITLES, row, to_json};
use crate::store::Target;

pub(crate) async fn who(args: Lock) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let participants = client.mutex(&args.name)?.participants().await?;
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    if args.format.json {
        let participants: Vec<_> = participants.iter().map(to_json).collect();
        print_json(&json!({ "lock": args.name.as_str(), "participants": participants }))?;
    } else if participants.is_empty() {
        print(&format!("{}: free", clean(args.name.as_str())))?;
    } else {
        print_table(TITLES, &participants.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(ExitCode::SUCCESS)
}
