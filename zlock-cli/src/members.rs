//! `zlock members`: shows the members of a group.

use std::process::ExitCode;

use serde_json::{Value, json};
use zlock::{Client, Freshness, Member};

use crate::args;
use crate::exit::Failure;
use crate::output::{clean, now, print, print_json, print_table, printable, utc, with_bytes};
use crate::store::Target;

pub(crate) async fn members(args: args::Members) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.lock.store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let (group, is_json) = (client.members(&args.lock.name)?, args.lock.format.json);
    if args.watch {
        let mut watch = group.watch();
        loop {
            let view = watch.changed().await?;
            changed(&view.members, view.freshness == Freshness::Fresh, is_json)?;
        }
    }
    let members = group.list().await?;
    // This client is no member, so a failure has no effect.
    let _ = client.close().await;
    if is_json {
        print_json(&json!({ "members": to_json(&members) }))?;
    } else {
        let row = |member: &Member| [clean(&member.id), member.token.to_string(), printable(&member.payload)];
        print_table(["ID", "TOKEN", "PAYLOAD"], &members.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn changed(members: &[Member], is_fresh: bool, is_json: bool) -> Result<(), Failure> {
    let time = utc(now());
    if is_json {
        return print_json(&json!({ "time": time, "members": to_json(members), "fresh": is_fresh }));
    }
    let text = match members {
        [] => "no members".to_owned(),
        members => members.iter().map(|member| clean(&member.id)).collect::<Vec<_>>().join(", "),
    };
    let doubt = if is_fresh { "" } else { " (perhaps no longer: the connection is in doubt)" };
    print(&format!("{time} {text}{doubt}"))
}

fn to_json(members: &[Member]) -> Value {
    let member = |member: &Member| {
        let object = json!({ "id": member.id, "token": member.token.number() });
        with_bytes(object, "payload", Some(&member.payload))
    };
    members.iter().map(member).collect()
}
