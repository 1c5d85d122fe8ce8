//! `zlock class`, `zlock settle` and `zlock restored`: the past of a store without sessions.

use std::process::ExitCode;

use serde_json::json;
use zlock::backend::{StoreHistory, StoreSettings};

use crate::args::{Class, StoreOnly};
use crate::exit::Failure;
use crate::output::{print, print_json};
use crate::store::{Store, Target};

/// Returns the history of a store that has one.
fn history(store: &Store) -> Result<&dyn StoreHistory, Failure> {
    let message =
        "this store keeps sessions itself: its restarts and failovers lose nothing that zlock relies on";
    store.backend.history().ok_or_else(|| Failure::failed(message))
}

pub(crate) async fn class(args: Class) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.store.store)?.connect().await?;
    let history = history(&store)?;
    if let Some(class) = args.set {
        history.set_class(class).await?;
    }
    let settings = history.settings().await?;
    if args.store.format.json {
        print_json(&to_json(&settings))?;
    } else {
        print(&text(&settings))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn settle(args: StoreOnly) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.store)?.connect().await?;
    let history = history(&store)?;
    history.settle().await?;
    if args.format.json {
        print_json(&to_json(&history.settings().await?))?;
    } else {
        print("the store grants locks")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn restored(args: StoreOnly) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.store)?.connect().await?;
    let history = history(&store)?;
    history.restored().await?;
    let settings = history.settings().await?;
    if args.format.json {
        print_json(&to_json(&settings))?;
    } else {
        print(&format!("all sessions have ended; {}", settles(&settings)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(settings: &StoreSettings) -> serde_json::Value {
    json!({
        "class": settings.class.to_string(),
        "lossy": settings.is_lossy,
        "reason": settings.reason,
        "longest_seconds": settings.longest.as_secs_f64(),
        "overlap_seconds": settings.overlap.as_secs_f64(),
        "settles_in_seconds": settings.settles_in.map(|time| time.as_secs_f64()),
    })
}

fn text(settings: &StoreSettings) -> String {
    let found = match &settings.reason {
        Some(reason) => format!(", found to be lossy: {reason}"),
        None => String::new(),
    };
    let restart = if settings.is_lossy { "ends all sessions" } else { "ends no session" };
    format!(
        "class {}{found}\na restart {restart}; the longest session timeout is {:?}; {}",
        settings.class,
        settings.longest,
        settles(settings),
    )
}

fn settles(settings: &StoreSettings) -> String {
    match settings.settles_in {
        Some(time) => format!("nothing is granted for about {} seconds", time.as_secs() + 1),
        None => "locks are granted".into(),
    }
}
