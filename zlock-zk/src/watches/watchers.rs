//! Decides which connection carries which watch.
//!
//! When the client library reconnects, it sends the paths of all its watches to the server. Paths of more than 128 KiB do not
//! fit into one request. The library then mixes up the answers to several requests, and reconnects again and again until the
//! session is over. So the paths that one client of the library watches must stay below that limit at any time, including
//! watches whose removal is still in its queue.
//!
//! The session's own client has room for what most users need. All further watches use *watch connections*: separate sessions
//! that own no node.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use zlock_core::kit::Interrupted;
use zlock_core::{Error, Mutex};
use zookeeper_client::Client;

use crate::error::Failure;

/// The maximum number of bytes of paths that the session's own client watches. The margin is wide, because this client must
/// not be lost.
const OWN: usize = 64 * 1024;

/// The maximum number of bytes of paths that a watch connection watches.
const OTHER: usize = 96 * 1024;

/// The maximum number of watch connections. By default, a server accepts 60 connections from one host.
const CONNECTIONS: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Limits {
    own: usize,
    other: usize,
    connections: usize,
}

impl Limits {
    fn total(self) -> usize {
        self.own + self.other * self.connections
    }
}

/// What is watched. The library sends a path once for each method of watching it, however many watches there are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watched {
    Node(Arc<str>),
    Missing(Arc<str>),
    Children(Arc<str>),
}

impl Watched {
    pub(crate) fn path(&self) -> &Arc<str> {
        let (Watched::Node(path) | Watched::Missing(path) | Watched::Children(path)) = self;
        path
    }
}

/// What one client watches, or may watch once its requests in flight are answered.
#[derive(Debug, Default)]
struct Load {
    bytes: usize,
    watches: BTreeMap<Watched, usize>,
}

impl Load {
    fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    fn takes(&self, watched: &Watched, limit: usize) -> bool {
        self.watches.contains_key(watched) || self.bytes + watched.path().len() <= limit
    }

    fn add(&mut self, watched: &Watched) {
        let count = self.watches.entry(watched.clone()).or_default();
        if *count == 0 {
            self.bytes += watched.path().len();
        }
        *count += 1;
    }

    fn remove(&mut self, watched: &Watched) {
        if let Some(count) = self.watches.get_mut(watched) {
            *count -= 1;
            if *count == 0 {
                self.watches.remove(watched);
                self.bytes -= watched.path().len();
            }
        }
    }
}

/// The client that has a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Own,
    Other(u64),
}

/// The loads of all clients. `C` is the type of a watch connection.
#[derive(Debug)]
struct Loads<C> {
    limits: Limits,
    own: Load,
    /// In the order in which they were opened.
    others: Vec<(u64, Load, C)>,
    /// The number of the last connection.
    last: u64,
}

impl<C> Loads<C> {
    fn new(limits: Limits) -> Self {
        Loads { limits, own: Load::default(), others: Vec::new(), last: 0 }
    }

    fn other(&mut self, number: u64) -> Option<&mut (u64, Load, C)> {
        self.others.iter_mut().find(|(other, ..)| *other == number)
    }

    fn bytes(&self) -> usize {
        self.own.bytes + self.others.iter().map(|(_, load, _)| load.bytes).sum::<usize>()
    }

    /// Adds a watch to the first client that has room, so that later connections become empty. `open` creates a new
    /// connection with the given number.
    fn add(&mut self, watched: &Watched, open: impl FnOnce(u64) -> C) -> Result<Carrier, Failure> {
        let Limits { own, other, connections } = self.limits;
        if self.own.takes(watched, own) {
            self.own.add(watched);
            return Ok(Carrier::Own);
        }
        if let Some((number, load, _)) =
            self.others.iter_mut().find(|(_, load, _)| load.takes(watched, other))
        {
            load.add(watched);
            return Ok(Carrier::Other(*number));
        }
        if self.others.len() >= connections || watched.path().len() > other {
            return Err(Failure::TooManyWatches {
                more: watched.path().len(),
                watched: self.bytes(),
                limit: self.limits.total(),
            });
        }
        self.last += 1;
        let mut load = Load::default();
        load.add(watched);
        self.others.push((self.last, load, open(self.last)));
        Ok(Carrier::Other(self.last))
    }

    /// Removes a watch, and returns the connections that are no longer needed. One empty connection is kept while the
    /// session's own client has at least half its maximum load, because it would soon be needed again.
    #[must_use]
    fn remove(&mut self, carrier: Carrier, watched: &Watched) -> Vec<C> {
        match carrier {
            Carrier::Own => self.own.remove(watched),
            Carrier::Other(number) => {
                if let Some((_, load, _)) = self.other(number) {
                    load.remove(watched);
                }
            }
        }
        let mut spare = self.own.bytes >= self.limits.own / 2;
        let surplus = self.others.extract_if(.., |(_, load, _)| {
            let keep = !load.is_empty() || std::mem::take(&mut spare);
            !keep
        });
        surplus.map(|(_, _, connection)| connection).collect()
    }
}

/// A watch connection, open or being opened.
struct Connection {
    /// `None` until the outcome of opening it is known.
    opened: watch::Receiver<Option<Result<Client, Error>>>,
    /// The task that opens the connection.
    opening: AbortHandle,
}

impl Connection {
    /// Returns `true` if the connection cannot be opened, or if its session is over.
    fn is_lost(&self) -> bool {
        match &*self.opened.borrow() {
            None => false,
            Some(Ok(client)) => client.state().is_terminated(),
            Some(Err(_)) => true,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.opening.abort();
    }
}

/// Opens a watch connection.
type Open = dyn Fn() -> Pin<Box<dyn Future<Output = Result<Client, Error>> + Send>> + Send + Sync;

/// The watches of one session of a backend.
pub(crate) struct Watchers {
    runtime: Handle,
    open: Box<Open>,
    /// `None` when the session is over.
    loads: Mutex<Option<Loads<Connection>>>,
}

impl Watchers {
    /// Creates the watches of a session. `open` is called for each watch connection, and the returned future runs on
    /// `runtime`.
    pub(crate) fn new<F>(runtime: Handle, open: impl Fn() -> F + Send + Sync + 'static) -> Arc<Self>
    where
        F: Future<Output = Result<Client, Error>> + Send + 'static,
    {
        let limits = Limits { own: OWN, other: OTHER, connections: CONNECTIONS };
        let open = Box::new(move || Box::pin(open()) as _);
        Arc::new(Watchers { runtime, open, loads: Mutex::new(Some(Loads::new(limits))) })
    }

    /// Reserves room for a watch on the session's own connection. `None` if there is not enough.
    pub(crate) fn reserve_own(self: &Arc<Self>, watched: Watched) -> Option<Reservation> {
        let mut loads = self.loads.lock();
        let loads = loads.as_mut()?;
        if !loads.own.takes(&watched, loads.limits.own) {
            return None;
        }
        loads.own.add(&watched);
        Some(Reservation { watchers: self.clone(), carrier: Carrier::Own, watched })
    }

    /// Reserves room for a watch. Must be called before its request is sent.
    pub(crate) fn reserve(self: &Arc<Self>, watched: Watched) -> Result<Reservation, Failure> {
        let lost: Vec<_>;
        let carrier = {
            let mut loads = self.loads.lock();
            let loads = loads.as_mut().ok_or(Interrupted::SessionLost)?;
            // The watches on these connections have fired or failed.
            lost = loads.others.extract_if(.., |(_, _, connection)| connection.is_lost()).collect();
            loads.add(&watched, |_| self.open())?
        };
        // Outside the mutex.
        drop(lost);
        Ok(Reservation { watchers: self.clone(), carrier, watched })
    }

    /// Begins to open a connection. All callers meanwhile wait for the same connection.
    fn open(&self) -> Connection {
        let ((tell, opened), opening) = (watch::channel(None), (self.open)());
        let opening = self.runtime.spawn(async move {
            let opened = opening.await;
            match &opened {
                Ok(client) => {
                    tracing::debug!(session = %client.session_id(), "opened another connection for watches");
                }
                Err(error) => tracing::warn!(%error, "could not open another connection for watches"),
            }
            tell.send_replace(Some(opened));
        });
        Connection { opened, opening: opening.abort_handle() }
    }

    /// Ends all watch connections.
    pub(crate) fn close(&self) {
        let loads = self.loads.lock().take();
        // Outside the mutex.
        drop(loads);
    }
}

/// Room for a watch, freed when this is dropped. Drop it only after the library's watcher was dropped or has fired.
pub(crate) struct Reservation {
    watchers: Arc<Watchers>,
    carrier: Carrier,
    watched: Watched,
}

impl Reservation {
    pub(crate) fn path(&self) -> &str {
        self.watched.path()
    }

    /// Returns the watch connection once it is open, or `None` for the session's own client.
    pub(crate) async fn client(&self) -> Result<Option<Client>, Failure> {
        let Carrier::Other(number) = self.carrier else { return Ok(None) };
        let opened = match self.watchers.loads.lock().as_mut() {
            Some(loads) => loads.other(number).map(|(_, _, connection)| connection.opened.clone()),
            None => return Err(Interrupted::SessionLost.into()),
        };
        let Some(mut opened) = opened else { return Err(Failure::NotWatching(None)) };
        match opened.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(client))) => Ok(Some(client.clone())),
            Ok(Some(Err(error))) => Err(Failure::NotWatching(Some(error.clone()))),
            _ => Err(Failure::NotWatching(None)),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let surplus =
            self.watchers.loads.lock().as_mut().map(|loads| loads.remove(self.carrier, &self.watched));
        // Outside the mutex.
        drop(surplus);
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::ErrorKind;
    use zlock_core::kit::Failure as _;

    use super::*;

    const LIMITS: Limits = Limits { own: 40, other: 60, connections: 2 };

    /// Returns a node whose path has ten bytes.
    fn node(number: usize) -> Watched {
        Watched::Node(format!("/node-{number:04}").into())
    }

    fn add(loads: &mut Loads<u64>, watched: &Watched) -> Carrier {
        loads.add(watched, |number| number).unwrap()
    }

    #[test]
    fn watches_beyond_the_first_client_go_to_as_few_others_as_possible() {
        let mut loads = Loads::new(LIMITS);
        let places: Vec<_> = (0..12).map(|n| add(&mut loads, &node(n))).collect();
        assert_eq!(places[..4], [Carrier::Own; 4]);
        assert_eq!(places[4..10], [Carrier::Other(1); 6]);
        assert_eq!(places[10..], [Carrier::Other(2); 2]);
        assert_eq!(loads.bytes(), 120);
        // Room that was freed is used first.
        assert!(loads.remove(Carrier::Own, &node(1)).is_empty());
        assert_eq!(add(&mut loads, &node(20)), Carrier::Own);
        assert!(loads.remove(Carrier::Other(1), &node(4)).is_empty());
        assert_eq!(add(&mut loads, &node(21)), Carrier::Other(1));
    }

    #[test]
    fn a_path_counts_once_for_each_kind_of_watch_on_it() {
        let mut loads = Loads::new(LIMITS);
        let path: Arc<str> = "/twenty-bytes-of-path".into();
        for _ in 0..100 {
            assert_eq!(add(&mut loads, &Watched::Children(path.clone())), Carrier::Own);
        }
        assert_eq!(loads.bytes(), 21);
        assert_eq!(add(&mut loads, &Watched::Missing(path.clone())), Carrier::Other(1));
        for _ in 0..99 {
            assert!(loads.remove(Carrier::Own, &Watched::Children(path.clone())).is_empty());
        }
        assert_eq!(loads.bytes(), 42);
        let _ = loads.remove(Carrier::Own, &Watched::Children(path.clone()));
        assert_eq!(loads.bytes(), 21);
    }

    #[test]
    fn one_empty_connection_is_kept_while_the_first_client_is_half_full() {
        let mut loads = Loads::new(LIMITS);
        let places: Vec<_> = (0..11).map(|n| add(&mut loads, &node(n))).collect();
        for n in 4..10 {
            assert!(loads.remove(Carrier::Other(1), &node(n)).is_empty(), "{n}");
        }
        assert_eq!(places[10], Carrier::Other(2));
        assert_eq!(loads.remove(Carrier::Other(2), &node(10)), [2]);
        assert!(loads.remove(Carrier::Own, &node(0)).is_empty());
        assert!(loads.remove(Carrier::Own, &node(1)).is_empty());
        assert_eq!(loads.remove(Carrier::Own, &node(2)), [1]);
        assert!(loads.others.is_empty());
    }

    #[test]
    fn what_a_lost_connection_watched_is_not_counted_twice() {
        let mut loads = Loads::new(LIMITS);
        let places: Vec<_> = (0..5).map(|n| add(&mut loads, &node(n))).collect();
        loads.others.clear();
        assert!(loads.remove(places[4], &node(4)).is_empty());
        assert_eq!(add(&mut loads, &node(5)), Carrier::Other(2), "a number is used once");
        assert_eq!(loads.bytes(), 50);
    }

    #[test]
    fn a_watch_beyond_all_limits_is_an_error_with_its_figures() {
        let mut loads = Loads::new(LIMITS);
        for n in 0..16 {
            add(&mut loads, &node(n));
        }
        let refused = |loads: &mut Loads<u64>, watched: &Watched| {
            let failure = loads.add(watched, |number| number).unwrap_err();
            let class = failure.classify();
            assert!(!class.retryable);
            failure.explain(Error::new(class.kind, "exists_with_watch"))
        };
        let error = refused(&mut loads, &node(16));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("watches 160 of at most 160 bytes") && text.contains("10 more"), "{text}");
        // A path that is already watched costs nothing, and freed room can be used.
        assert_eq!(add(&mut loads, &node(3)), Carrier::Own);
        let _ = loads.remove(Carrier::Other(1), &node(5));
        assert_eq!(add(&mut loads, &node(16)), Carrier::Other(1));
        // There is enough room in total, but not in one connection.
        let mut loads = Loads::new(LIMITS);
        let long = |n: usize| Watched::Node(format!("/{n}{}", "x".repeat(32)).into());
        for n in 0..3 {
            add(&mut loads, &long(n));
        }
        let text = refused(&mut loads, &long(3)).to_string();
        assert!(text.contains("watches 102 of at most 160 bytes") && text.contains("34 more"), "{text}");
        // A path for which no connection has room.
        let mut loads = Loads::new(LIMITS);
        let text = refused(&mut loads, &Watched::Node("/x".repeat(31).into())).to_string();
        assert!(text.contains("62 more"), "{text}");
        assert!(loads.others.is_empty());
    }
}
