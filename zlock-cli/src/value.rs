//! `zlock get`, `set` and `watch-value`: values that outlive their writers.

use std::io::{Read as _, stdin};
use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;

use serde_json::json;
use zlock::{Client, Freshness, SharedValue};

use crate::args::{Lock, Set, Store};
use crate::exit::{Failure, checked};
use crate::output::{clean, now, print, print_json, utc, with_bytes, write};
use crate::store::Target;

/// More bytes than a value may have.
const TOO_MANY: u64 = 1_000_001;

pub(crate) async fn get(args: Lock) -> Result<ExitCode, Failure> {
    let (client, value) = open(&args.store, &args.name).await?;
    let found = value.get().await?;
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    let data = found.as_ref().map(|value| &*value.data);
    let printed = match data {
        _ if args.format.json => print_json(&with_bytes(json!({}), "value", data)),
        // As it is, for scripts.
        Some(data) => write(&[data, b"\n"].concat()),
        None => Ok(()),
    };
    checked(data.is_some(), printed)
}

pub(crate) async fn set(args: Set) -> Result<ExitCode, Failure> {
    let data = if args.value == "-" { read_input()? } else { args.value.into_vec() };
    let (client, value) = open(&args.store, &args.name).await?;
    value.update(|_| Some(data.clone())).await?;
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
            print_json(&with_bytes(json!({ "time": time, "fresh": is_fresh }), "value", data.as_deref()))?;
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

/// Reads a value from standard input, as far as it may be one.
fn read_input() -> Result<Vec<u8>, Failure> {
    let mut data = Vec::new();
    let read = stdin().lock().take(TOO_MANY).read_to_end(&mut data);
    read.map_err(|error| Failure::failed(format!("cannot read standard input: {error}")))?;
    Ok(data)
}
