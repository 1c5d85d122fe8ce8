//! `zlock get`, `set` and `watch-value`: values that outlive their writers.

use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use zlock::{Client, Freshness, SharedValue};

use crate::args::{Lock, Set, Store};
use crate::exit::{Failure, checked};
use crate::output::{clean, now, print, print_json, utc, write};
use crate::store::Target;

pub(crate) async fn get(args: Lock) -> Result<ExitCode, Failure> {
    let (client, value) = open(&args.store, &args.name).await?;
    let found = value.get().await?;
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    let data = found.as_ref().map(|value| &*value.data);
    let printed = match data {
        _ if args.format.json => print_json(&json!({ "value": to_json(data) })),
        // As it is, for scripts.
        Some(data) => write(&[data, b"\n"].concat()),
        None => Ok(()),
    };
    checked(data.is_some(), printed)
}

pub(crate) async fn set(args: Set) -> Result<ExitCode, Failure> {
    let (client, value) = open(&args.store, &args.name).await?;
    value.update(|_| Some(args.value.as_bytes().to_vec())).await?;
    let _ = client.close().await;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn watch(args: Lock) -> Result<ExitCode, Failure> {
    let (_client, value) = open(&args.store, &args.name).await?;
    let mut views = value.watch();
    loop {
        let view = views.changed().await?;
        let (data, is_fresh) = (view.value.map(|value| value.data), view.freshness == Freshness::Fresh);
        let time = utc(now());
        if args.format.json {
            print_json(&json!({ "time": time, "value": to_json(data.as_deref()), "fresh": is_fresh }))?;
            continue;
        }
        let text = data.map_or_else(|| "no value".to_owned(), |data| clean(&String::from_utf8_lossy(&data)));
        let doubt = if is_fresh { "" } else { " (perhaps no longer: the connection is in doubt)" };
        print(&format!("{time} {text}{doubt}"))?;
    }
}

async fn open(store: &Store, name: &zlock::LockPath) -> Result<(Client, SharedValue), Failure> {
    let store = Target::of(store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let value = client.shared_value(name)?;
    Ok((client, value))
}

fn to_json(data: Option<&[u8]>) -> Json {
    data.map_or(Json::Null, |data| String::from_utf8_lossy(data).into())
}
