//! Requests to etcd beyond those of locks. All of them are reads.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{Client, Error, GetOptions, KeyValue};
use tokio::time::timeout;
use zlock::LockPath;
use zlock::etcd::EtcdOptions;

use crate::exit::Failure;

/// The number of keys in a response.
const PAGE: i64 = 1000;

/// The time limit for a server's response.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// gRPC's code for a server that cannot be reached.
const UNAVAILABLE: i32 = 14;

/// Connects to the first server that responds, even with a refusal.
pub(crate) async fn connect(options: &EtcdOptions) -> Result<Client, Failure> {
    let mut failure = Failure::failed("etcd: no server responds");
    for server in options.server_addresses().await? {
        let mut client = options.connect_client(&server).await?;
        match timeout(PATIENCE, client.status()).await {
            Ok(Ok(_)) => return Ok(client),
            Ok(Err(Error::GRpcStatus(status))) if status.code() as i32 != UNAVAILABLE => return Ok(client),
            Ok(Err(error)) => failure = failed(error),
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Returns the prefix in a URL.
fn prefix_of(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let rest = rest.split('?').next().unwrap_or_default().trim_end_matches('/');
    rest.find('/').map_or("", |slash| &rest[slash..])
}

/// Returns the locks below a path: the paths of keys that are named after their lease.
pub(crate) async fn locks_below(
    options: &EtcdOptions,
    url: &str,
    prefix: Option<&LockPath>,
) -> Result<Vec<LockPath>, Failure> {
    let mut found = BTreeSet::new();
    each_key(options, url, prefix, |path, name, key| {
        if is_place(name, key) {
            found.insert(path.to_owned());
        }
    })
    .await?;
    Ok(found.iter().filter_map(|path| LockPath::new(path).ok()).collect())
}

/// Calls `look` with each key below the path: its path below the URL's prefix, its name there, and the key itself.
pub(crate) async fn each_key(
    options: &EtcdOptions,
    url: &str,
    prefix: Option<&LockPath>,
    mut look: impl FnMut(&str, &str, &KeyValue),
) -> Result<(), Failure> {
    let mut client = connect(options).await?;
    let root = prefix_of(url);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_have_a_prefix() {
        for (url, prefix) in [
            ("etcd://h1:1,h2/app/x?ttl=5s", "/app/x"),
            ("etcd://h", ""),
            ("etcd://h/", ""),
            ("etcd://[::1]:2379/a", "/a"),
            ("etcd+srv://h/a/", "/a"),
        ] {
            assert_eq!(prefix_of(url), prefix, "{url}");
        }
    }
}
