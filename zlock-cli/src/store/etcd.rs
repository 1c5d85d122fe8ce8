//! Requests to etcd beyond those of locks. All of them are reads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Error, GetOptions, KeyValue, StatusResponse};
use tokio::time::timeout;
use zlock::LockPath;
use zlock::backend::CoordinationBackend;
use zlock::etcd::EtcdOptions;

use super::lookup::Lookups;
use super::{Count, Row, job_of};
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

/// Calls `row` with each lock below a path: the paths of keys that are named after their lease.
pub(super) async fn each_lock(
    options: &EtcdOptions,
    backend: &Arc<dyn CoordinationBackend>,
    prefix: Option<&LockPath>,
    row: impl FnMut(Row) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let mut client = connect(options).await?;
    let mut walk = Walk::<usize>::new(&mut client, options.prefix(), prefix);
    let mut lookups = Lookups::new(backend, row);
    let mut count =
        |places: &mut usize, name: &str, key: &KeyValue| *places += usize::from(is_place(name, key));
    while let Some((path, places)) = walk.next(&mut count).await? {
        let Some(path) = LockPath::new(path).ok().filter(|_| places > 0) else { continue };
        // The labels of several nodes are in their values.
        lookups.add(path, places > 1).await?;
    }
    lookups.finish().await?;
    // A range that contains a key that may not be read is refused as a whole.
    Ok(Count::default())
}

/// Calls `found` with the path of each job below a path.
pub(super) async fn each_job(
    options: &EtcdOptions,
    prefix: Option<&LockPath>,
    mut found: impl AsyncFnMut(LockPath) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let mut client = connect(options).await?;
    let mut walk = Walk::<Vec<String>>::new(&mut client, options.prefix(), prefix);
    let mut collect = |names: &mut Vec<String>, name: &str, key: &KeyValue| {
        if name.ends_with(".job") && key.lease() == 0 {
            names.push(name.to_owned());
        }
    };
    while let Some((folder, names)) = walk.next(&mut collect).await? {
        for path in names.iter().filter_map(|name| job_of(&folder, name)) {
            found(path).await?;
        }
    }
    Ok(Count::default())
}

/// Reads all keys below a path, page by page, and collects a `T` for each path that has keys. Keeps in memory one page, and
/// the paths above the current key.
pub(crate) struct Walk<'a, T> {
    client: &'a mut Client,
    root: &'a str,
    /// Where the next page begins; `None` after the last page.
    next: Option<Vec<u8>>,
    end: String,
    page: VecDeque<KeyValue>,
    open: Vec<(String, T)>,
}

impl<'a, T: Default> Walk<'a, T> {
    pub(crate) fn new(client: &'a mut Client, root: &'a str, prefix: Option<&LockPath>) -> Self {
        let start = format!("{root}{}/", prefix.map_or("", LockPath::as_str));
        // '0' comes right after '/'.
        let end = format!("{}0", &start[..start.len() - 1]);
        Walk { client, root, next: Some(start.into_bytes()), end, page: VecDeque::new(), open: Vec::new() }
    }

    /// Returns the next path all of whose keys were passed to `add`, with their names below the path. `None` at the end.
    pub(crate) async fn next(
        &mut self,
        mut add: impl FnMut(&mut T, &str, &KeyValue),
    ) -> Result<Option<(String, T)>, Failure> {
        loop {
            while let Some(key) = self.page.pop_front() {
                let text = key.key_str().ok().and_then(|text| text.strip_prefix(self.root));
                let Some((path, name)) = text.and_then(|text| text.rsplit_once('/')) else { continue };
                // In the order of keys, all keys below a path follow one another. Among them are those of locks below it.
                if let Some((open, _)) = self.open.last()
                    && path
                        .strip_prefix(&**open)
                        .is_none_or(|rest| !rest.is_empty() && !rest.starts_with('/'))
                {
                    self.page.push_front(key);
                    return Ok(self.open.pop());
                }
                if self.open.last().is_none_or(|(open, _)| open != path) {
                    self.open.push((path.to_owned(), T::default()));
                }
                if let Some((_, collected)) = self.open.last_mut() {
                    add(collected, name, &key);
                }
            }
            let Some(next) = self.next.take() else { return Ok(self.open.pop()) };
            self.read(next).await?;
        }
    }

    async fn read(&mut self, next: Vec<u8>) -> Result<(), Failure> {
        let options = GetOptions::new().with_range(self.end.clone()).with_keys_only().with_limit(PAGE);
        let mut page = self.client.get(next, Some(options)).await.map_err(failed)?;
        let has_more = page.more();
        self.page = page.take_kvs().into();
        self.next = self.page.back().filter(|_| has_more).map(|last| [last.key(), &[0]].concat());
        Ok(())
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
