//! A storage that the locks protect. It rejects tokens below the highest one that it has seen.
//!
//! The storage runs in the main process, so no faults affect it, and its operations are atomic.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::clock::now;
use crate::history::{Ns, Write};

/// The counter of a lock.
#[derive(Debug, Default)]
struct Counter {
    highest: u64,
    value: u64,
    accepted: Vec<Write>,
}

impl Counter {
    /// Reads or writes the value. Returns the value, or the newer token because of which it was rejected.
    fn visit(&mut self, token: u64, value: Option<u64>) -> Result<u64, u64> {
        if token < self.highest {
            return Err(self.highest);
        }
        self.highest = token;
        if let Some(value) = value {
            self.value = value;
            self.accepted.push(Write { token, value });
        }
        Ok(self.value)
    }
}

type Counters = Arc<Mutex<BTreeMap<String, Counter>>>;

/// The storage. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Storage {
    counters: Counters,
    server: JoinHandle<()>,
}

impl Storage {
    /// Starts the storage on a socket.
    pub(crate) fn start(socket: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let counters = Counters::default();
        let all = counters.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, all.clone()));
            }
        });
        Ok(Storage { counters, server })
    }

    /// Returns the accepted writes of each lock.
    pub(crate) fn accepted(&self) -> BTreeMap<String, Vec<Write>> {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.iter().map(|(lock, counter)| (lock.clone(), counter.accepted.clone())).collect()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(stream: UnixStream, counters: Counters) {
    let (requests, mut answers) = stream.into_split();
    let mut requests = BufReader::new(requests).lines();
    // A killed client may end its connection at any point.
    while let Ok(Some(request)) = requests.next_line().await {
        let mut words = request.split(' ');
        let (lock, token) =
            (words.next().unwrap_or_default(), words.next().and_then(|word| word.parse().ok()));
        let value = words.next().and_then(|word| word.parse().ok());
        let visited = {
            let mut counters = counters.lock().unwrap_or_else(PoisonError::into_inner);
            counters.entry(lock.to_owned()).or_default().visit(token.expect("a token"), value)
        };
        let answer = match visited {
            Ok(value) => format!("ok {value}\n"),
            Err(newer) => format!("refused {} {newer}\n", now()),
        };
        if answers.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A client's connection to the storage.
#[derive(Debug)]
pub(crate) struct Visitor(BufReader<UnixStream>);

/// The response of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visited {
    Value(u64),
    /// Rejected at this time, because of a newer token.
    Refused(Ns, u64),
}

impl Visitor {
    pub(crate) async fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Visitor(BufReader::new(UnixStream::connect(socket).await?)))
    }

    /// Reads the counter of a lock, or writes it.
    pub(crate) async fn visit(&mut self, lock: &str, token: u64, value: Option<u64>) -> io::Result<Visited> {
        let value = value.map(|value| format!(" {value}")).unwrap_or_default();
        self.0.get_mut().write_all(format!("{lock} {token}{value}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        let mut words = answer.split_whitespace();
        let kind = words.next();
        let mut number = || words.next().and_then(|word| word.parse().ok());
        match (kind, number(), number()) {
            (Some("ok"), Some(value), None) => Ok(Visited::Value(value)),
            (Some("refused"), Some(at), Some(newer)) => Ok(Visited::Refused(at, newer)),
            _ => Err(io::Error::other(format!("the storage answered {answer:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_older_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let storage = Storage::start(&socket).unwrap();
        let mut old = Visitor::connect(&socket).await.unwrap();
        let mut new = Visitor::connect(&socket).await.unwrap();
        assert_eq!(old.visit("/l", 5, None).await.unwrap(), Visited::Value(0));
        assert_eq!(new.visit("/l", 6, None).await.unwrap(), Visited::Value(0));
        assert!(matches!(old.visit("/l", 5, Some(1)).await.unwrap(), Visited::Refused(_, 6)));
        assert_eq!(old.visit("/m", 5, Some(1)).await.unwrap(), Visited::Value(1));
        assert_eq!(new.visit("/l", 6, Some(1)).await.unwrap(), Visited::Value(1));
        assert_eq!(storage.accepted()["/l"], [Write { token: 6, value: 1 }]);
    }
}
