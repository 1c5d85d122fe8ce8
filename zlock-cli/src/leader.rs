//! `zlock leader`: shows who leads.

use std::process::ExitCode;

use serde_json::{Value, json};
use zlock::{Client, Freshness};

use crate::args;
use crate::exit::{Failure, checked};
use crate::output::{clean, now, print, print_json, utc, with_bytes};
use crate::store::Target;

pub(crate) async fn leader(args: args::Leader) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.lock.store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let (election, is_json) = (client.election(&args.lock.name)?, args.lock.format.json);
    if args.watch {
        let mut leaders = election.observe();
        loop {
            let view = leaders.changed().await?;
            changed(view.leader.as_ref(), view.freshness == Freshness::Fresh, is_json)?;
        }
    }
    let (leader, asked) = if args.step_down {
        (None, election.request_step_down().await?)
    } else {
        (election.leader().await?, None)
    };
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    let (printed, is_good) = match (args.step_down, asked, leader.as_ref()) {
        (true, Some(term), _) if is_json => (print_json(&json!({ "asked": term.number() })), true),
        (true, Some(term), _) => (print(&format!("asked the leader of term {term} to step down")), true),
        (_, _, leader) if is_json => (print_json(&json!({ "leader": to_json(leader) })), leader.is_some()),
        (_, _, leader) => (print(&text(leader)), leader.is_some()),
    };
    checked(is_good, printed)
}

fn changed(leader: Option<&zlock::Leader>, is_fresh: bool, is_json: bool) -> Result<(), Failure> {
    let time = utc(now());
    if is_json {
        return print_json(&json!({ "time": time, "leader": to_json(leader), "fresh": is_fresh }));
    }
    let doubt = if is_fresh { "" } else { " (perhaps no longer: the connection is in doubt)" };
    print(&format!("{time} {}{doubt}", text(leader)))
}

fn text(leader: Option<&zlock::Leader>) -> String {
    match leader {
        Some(leader) => {
            format!("{} leads in term {}", clean(&String::from_utf8_lossy(&leader.value)), leader.term)
        }
        None => "nobody leads".to_owned(),
    }
}

fn to_json(leader: Option<&zlock::Leader>) -> Value {
    let object = |leader: &zlock::Leader| {
        with_bytes(json!({ "term": leader.term.number() }), "value", Some(&leader.value))
    };
    leader.map_or(Value::Null, object)
}
