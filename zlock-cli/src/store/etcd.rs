//! Requests to etcd beyond those of locks. All of them are reads.

use std::collections::BTreeSet;

use etcd_client::{Client, ConnectOptions, GetOptions, KeyValue};
use zlock::LockPath;

use crate::exit::Failure;

/// The number of keys in a response.
const PAGE: i64 = 1000;

/// Connects to the hosts in the URL.
pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let (hosts, _) = parts(url);
    let hosts: Vec<_> = hosts
        .split(',')
        .map(|host| if has_port(host) { format!("http://{host}") } else { format!("http://{host}:2379") })
        .collect();
    let options = ConnectOptions::new().with_connect_timeout(std::time::Duration::from_secs(5));
    Client::connect(hosts, Some(options)).await.map_err(failed)
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Splits a URL into hosts and prefix.
fn parts(url: &str) -> (&str, &str) {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let rest = rest.split('?').next().unwrap_or_default().trim_end_matches('/');
    rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash))
}

/// Returns the locks below a path: the paths of keys that are named after their lease.
pub(crate) async fn locks_below(url: &str, prefix: Option<&LockPath>) -> Result<Vec<LockPath>, Failure> {
    let mut found = BTreeSet::new();
    each_key(url, prefix, |path, name, key| {
        if is_place(name, key) {
            found.insert(path.to_owned());
        }
    })
    .await?;
    Ok(found.iter().filter_map(|path| LockPath::new(path).ok()).collect())
}

/// Calls `look` with each key below the path: its path below the URL's prefix, its name there, and the key itself.
pub(crate) async fn each_key(
    url: &str,
    prefix: Option<&LockPath>,
    mut look: impl FnMut(&str, &str, &KeyValue),
) -> Result<(), Failure> {
    let mut client = connect(url).await?;
    let (_, root) = parts(url);
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

pub(crate) fn failed(error: etcd_client::Error) -> Failure {
    Failure::failed(format!("etcd: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_hosts_and_a_prefix() {
        for (url, hosts, prefix) in [
            ("etcd://h1:1,h2/app/x?ttl=5s", "h1:1,h2", "/app/x"),
            ("etcd://h", "h", ""),
            ("etcd://h/", "h", ""),
            ("etcd://[::1]:2379/a", "[::1]:2379", "/a"),
        ] {
            assert_eq!(parts(url), (hosts, prefix), "{url}");
        }
        assert!(has_port("[::1]:2379") && !has_port("[::1]") && !has_port("h"));
    }
}
