//! Requests to etcd beyond those of locks. All of them are reads.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{Client, Error, GetOptions, KeyValue, StatusResponse};
use tokio::time::timeout;
use zlock::LockPath;
use zlock::etcd::EtcdOptions;

use crate::exit::Failure;

/// The number of keys in a response.
const PAGE: i64 = 1000;

/// The time limit for a server's response.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the first server that responds.
async fn connect(options: &EtcdOptions) -> Result<Client, Failure> {
    let mut failure = no_server();
    for server in options.server_addresses().await? {
        match connect_to(options, &server).await {
            Ok((client, _)) => return Ok(client),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Connects to a server, and requests its status.
pub(crate) async fn connect_to(
    options: &EtcdOptions,
    server: &str,
) -> Result<(Client, StatusResponse), Failure> {
    let connect = async {
        let mut client = options.connect_client(server).await?;
        let status = client.status().await.map_err(failed)?;
        Ok((client, status))
    };
    let silent = |_| Err(Failure::failed("etcd: the server does not answer"));
    timeout(PATIENCE, connect).await.unwrap_or_else(silent)
}

pub(crate) fn no_server() -> Failure {
    Failure::failed("etcd: no server responds")
}

/// Returns the locks below a path: the paths of keys that are named after their lease.
pub(crate) async fn locks_below(
    options: &EtcdOptions,
    prefix: Option<&LockPath>,
) -> Result<Vec<LockPath>, Failure> {
    let mut found = BTreeSet::new();
    each_key(&mut connect(options).await?, options.prefix(), prefix, |path, name, key| {
        if is_place(name, key) {
            found.insert(path.to_owned());
        }
    })
    .await?;
    Ok(found.iter().filter_map(|path| LockPath::new(path).ok()).collect())
}

/// Calls `look` with each key below the path: its path below `root`, its name there, and the key itself.
pub(crate) async fn each_key(
    client: &mut Client,
    root: &str,
    prefix: Option<&LockPath>,
    mut look: impl FnMut(&str, &str, &KeyValue),
) -> Result<(), Failure> {
    let start = format!("{root}{}/", prefix.map_or("", LockPath::as_str));
    // '0' comes right after '/'.
    let end = format!("{}0", &start[..start.len() - 1]);
    let mut next = start.into_bytes();
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(PAGE);
        let page = client.get(next, Some(options)).await.map_err(failed)?;
        for key in page.kvs() {
            let text = key.key_str().ok().and_then(|text| text.strip_prefix(root));
            if let Some((path, name)) = text.and_then(|text| text.rsplit_once('/')) {
                look(path, name, key);
            }
        }
        let Some(last) = page.kvs().last().filter(|_| page.more()) else { return Ok(()) };
        next = [last.key(), &[0]].concat();
    }
}

/// Returns `true` if a key is in a queue: it is named after its lease, with a number if the session has several.
pub(crate) fn is_place(name: &str, key: &KeyValue) -> bool {
    let lease = name.split('.').next().unwrap_or_default();
    key.lease() != 0 && lease == format!("{:x}", key.lease())
}

pub(crate) fn failed(error: Error) -> Failure {
    Failure::failed(format!("etcd: {error}"))
}
