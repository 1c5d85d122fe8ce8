//! The stream that watches share.
//!
//! Nothing is resumed when the stream breaks. All its watches fire instead, and the waiters read again. That also
//! covers missed events, compaction and a change of leader. If streams break in quick succession, the next one is opened
//! after a pause (see [`Breaks`]).
//!
//! A watch that has fired costs no further message: when it was the stream's last, the stream is closed, which ends it
//! at the server. A stream takes at most [`MAX_ARMED`] watches in its life, so that it drains while the queue moves,
//! and later watches use a new stream. The remaining watches of a stream that does not drain are cancelled after
//! [`LINGER`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use zlock_core::kit::sleep_until;
use zlock_core::{Label, Mutex, SessionId};

use crate::config::EtcdOptions;
use crate::connection::connect::Endpoints;
use crate::connection::endpoint::Endpoint;
use crate::error::{Failure, OTHER_NUMBERS};
use crate::keys::key::{self, Range};
use crate::keys::revision::{self, Known};
use crate::keys::value;
use crate::watches::breaks::Breaks;

const MAX_ARMED: i64 = 64;
const LINGER: Duration = Duration::from_secs(1);

/// The maximum number of changes that a watch keeps until it is polled. Data may be written to a node, and a queue may
/// change, as long as the watch exists.
const MAX_CHANGES: usize = 64;

/// The maximum number of attempts to arm a watch, each on a stream that was just ending.
const TRIES: usize = 3;

/// The watches of a backend.
#[derive(Debug)]
pub(crate) struct Watches {
    endpoints: Arc<Endpoints>,
    /// The time limit for a server's answer.
    limit: Duration,
    runtime: Handle,
    breaks: Arc<Breaks>,
    latest: Mutex<Option<Line>>,
    /// Each stream has a clone.
    streams: Arc<()>,
}

/// The handle to the task of a stream.
#[derive(Debug)]
struct Line {
    commands: mpsc::UnboundedSender<Command>,
    /// The number of watches that it was given.
    armed: i64,
}

#[derive(Debug)]
enum Command {
    Arm(Arm),
    Drop(i64),
}

#[derive(Debug)]
struct Arm {
    id: i64,
    range: Range,
    armed: oneshot::Sender<Result<i64, Failure>>,
    changes: mpsc::Sender<Change>,
}

/// A key was written or deleted.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: Vec<u8>,
    /// The revision of the change.
    pub(crate) revision: i64,
    /// `None` if the key was deleted.
    pub(crate) put: Option<Put>,
}

/// The state of a key after it was written.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    /// The create revision of the key, which differs for another node of the same name.
    pub(crate) created: i64,
    pub(crate) owner: Option<SessionId>,
    pub(crate) label: Label,
}

/// An armed watch. Dropping it removes it at the server.
#[derive(Debug)]
pub(crate) struct Armed {
    id: i64,
    commands: mpsc::UnboundedSender<Command>,
    changes: mpsc::Receiver<Change>,
}

impl Armed {
    /// Returns the next change. `None` when the stream has broken, or after [`MAX_CHANGES`] if more of them were waiting:
    /// anything may have happened since.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }

    /// Returns the next change after this revision. `None` as for [`next`](Armed::next).
    pub(crate) async fn next_after(&mut self, revision: i64) -> Option<Change> {
        loop {
            match self.next().await {
                Some(change) if change.revision <= revision => {}
                news => return news,
            }
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // Fails only when the stream is gone.
        let _ = self.commands.send(Command::Drop(self.id));
    }
}

impl Watches {
    pub(crate) fn new(endpoints: Arc<Endpoints>, options: &EtcdOptions, runtime: Handle) -> Self {
        let breaks = Arc::new(Breaks::new(options.kit.operation_timeout));
        let (limit, latest, streams) = (options.kit.answer_time(), Mutex::new(None), Arc::default());
        Watches { endpoints, limit, runtime, breaks, latest, streams }
    }

    /// Returns `true` if anything is watched, or was a moment ago.
    pub(crate) fn is_watching(&self) -> bool {
        Arc::strong_count(&self.streams) > 1
    }

    /// Arms a watch, which reports every change after the returned revision.
    pub(crate) async fn arm(&self, range: Range) -> Result<(Armed, i64), Failure> {
        for _ in 0..TRIES {
            let (armed, answer) = self.send(range.clone());
            // Without an answer, the stream has ended before it received the command.
            if let Ok(answer) = answer.await {
                return answer.map(|revision| (armed, revision));
            }
        }
        Err(Failure::Unwatched("the stream keeps ending".into()))
    }

    /// Arms another watch on the same keys, which reports changes from an unknown revision on.
    pub(crate) fn arm_again(&self, range: Range) -> Armed {
        self.send(range).0
    }

    fn send(&self, range: Range) -> (Armed, oneshot::Receiver<Result<i64, Failure>>) {
        let (armed, answer) = oneshot::channel();
        let (events, changes) = mpsc::channel(MAX_CHANGES);
        let mut arm = Arm { id: 0, range, armed, changes: events };
        let mut latest = self.latest.lock();
        loop {
            let line = latest.take_if(|line| line.armed < MAX_ARMED).unwrap_or_else(|| self.begin());
            let line = latest.insert(line);
            line.armed += 1;
            let (id, commands) = (line.armed, line.commands.clone());
            arm.id = id;
            match commands.send(Command::Arm(arm)) {
                Ok(()) => return (Armed { id, commands, changes }, answer),
                Err(mpsc::error::SendError(Command::Arm(back))) => {
                    *latest = None;
                    arm = back;
                }
                Err(mpsc::error::SendError(Command::Drop(_))) => unreachable!("not what was sent"),
            }
        }
    }

    fn begin(&self) -> Line {
        let (commands, received) = mpsc::unbounded_channel();
        let task = Task {
            endpoint: self.endpoints.current(),
            endpoints: self.endpoints.clone(),
            limit: self.limit,
            known: self.endpoints.history().now(),
            breaks: self.breaks.clone(),
            commands: received,
            watches: BTreeMap::new(),
            unanswered: VecDeque::new(),
            done: Vec::new(),
            cancel_at: None,
            _stream: self.streams.clone(),
        };
        self.runtime.spawn(task.run());
        Line { commands, armed: 0 }
    }
}

/// The task of one stream. When it ends, all its remaining watches fire.
struct Task {
    endpoint: Arc<Endpoint>,
    endpoints: Arc<Endpoints>,
    limit: Duration,
    /// When the stream was opened.
    known: Known,
    breaks: Arc<Breaks>,
    commands: mpsc::UnboundedReceiver<Command>,
    watches: BTreeMap<i64, Entry>,
    /// Watches that the server has not answered yet. It answers in order.
    unanswered: VecDeque<i64>,
    /// Watches that were dropped but are still at the server.
    done: Vec<i64>,
    cancel_at: Option<Instant>,
    _stream: Arc<()>,
}

struct Entry {
    armed: Option<oneshot::Sender<Result<i64, Failure>>>,
    changes: mpsc::Sender<Change>,
}

/// The reason why a stream ends.
enum End {
    /// The stream is no longer needed.
    Idle,
    /// The stream is broken, its server is no longer the current one, or the server no longer accepts the token with which
    /// the stream was opened. The next connection has another token.
    Broken,
}

impl Task {
    async fn run(mut self) {
        let Some(Command::Arm(first)) = self.commands.recv().await else { return };
        self.breaks.pause().await;
        // The current one may have failed during the pause.
        self.endpoint = self.endpoints.current();
        self.known = self.endpoints.history().now();
        let opened = Instant::now();
        match self.open(&first).await {
            Ok(stream) => {
                self.insert(first);
                if matches!(self.serve(stream).await, End::Broken) {
                    self.breaks.record(opened);
                    self.endpoints.failed(self.endpoint.number);
                }
            }
            Err(failure) => {
                let failure = self.endpoints.noted(self.endpoint.number, failure);
                // Fails only if nothing waits any more.
                let _ = first.armed.send(Err(failure));
            }
        }
    }

    async fn open(&self, first: &Arm) -> Result<WatchStream, Failure> {
        let opened = timeout(self.limit, async {
            let mut client = self.endpoints.client(&self.endpoint).await?.watch_client();
            client.watch(first.range.start.as_str(), Some(options(first))).await.map_err(Failure::Etcd)
        });
        opened.await.unwrap_or(Err(Failure::Silent))
    }

    fn insert(&mut self, arm: Arm) {
        self.unanswered.push_back(arm.id);
        self.watches.insert(arm.id, Entry { armed: Some(arm.armed), changes: arm.changes });
    }

    async fn serve(&mut self, stream: WatchStream) -> End {
        let (mut requests, mut answers) = stream.split();
        let (endpoints, number) = (self.endpoints.clone(), self.endpoint.number);
        loop {
            let cancel_at = self.cancel_at;
            tokio::select! {
                biased;
                () = endpoints.moved_on(number) => return End::Broken,
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => {
                        self.take(&answer);
                        if is_out_of_date(&answer) {
                            return End::Broken;
                        }
                    }
                    Ok(None) | Err(_) => return End::Broken,
                },
                command = self.commands.recv() => match command {
                    Some(Command::Arm(arm)) => {
                        let sent = requests.watch(arm.range.start.as_str(), Some(options(&arm)));
                        let sent = timeout(self.limit, sent).await;
                        self.insert(arm);
                        if !matches!(sent, Ok(Ok(()))) {
                            return End::Broken;
                        }
                    }
                    Some(Command::Drop(id)) => {
                        self.remove(id);
                        if self.is_idle() {
                            return End::Idle;
                        }
                    }
                    None => return End::Idle,
                },
                () = sleep_until(cancel_at) => {
                    self.cancel_at = None;
                    for id in std::mem::take(&mut self.done) {
                        if !matches!(timeout(self.limit, requests.cancel(id)).await, Ok(Ok(()))) {
                            return End::Broken;
                        }
                    }
                }
            }
        }
    }

    /// Returns `true` if there is nothing left to do. From then on, no command is accepted: the sender of a recent command
    /// uses a new stream.
    fn is_idle(&mut self) -> bool {
        let idle = self.watches.is_empty() && self.commands.is_empty();
        if idle {
            self.commands.close();
        }
        idle
    }

    /// Removes a watch, and has it cancelled at the server if the stream lives on.
    fn remove(&mut self, id: i64) {
        if self.watches.remove(&id).is_some() {
            self.done.push(id);
            self.cancel_at.get_or_insert_with(|| Instant::now() + LINGER);
        }
    }

    fn take(&mut self, answer: &WatchResponse) {
        if answer.created() {
            let Some(id) = self.unanswered.pop_front() else { return };
            // A proxy that answers for itself numbers watches by itself, so no event would find its watch.
            let is_other = !answer.canceled() && answer.watch_id() != id;
            if answer.canceled() || is_other {
                if let Some(Entry { armed: Some(armed), .. }) = self.watches.remove(&id) {
                    let why = if is_other { OTHER_NUMBERS } else { answer.cancel_reason() };
                    let refused = Failure::Unwatched(why.to_owned());
                    let _ = armed.send(Err(self.endpoints.noted(self.endpoint.number, refused)));
                }
            } else if let Some(armed) = self.watches.get_mut(&id).and_then(|entry| entry.armed.take()) {
                let revision = revision::of(answer.header());
                self.endpoints.history().saw(self.known, revision);
                let _ = armed.send(Ok(revision));
            }
            return;
        }
        let id = answer.watch_id();
        if answer.canceled() {
            self.watches.remove(&id);
            return;
        }
        let Some(Entry { changes, .. }) = self.watches.get(&id) else { return };
        let mut has_room = true;
        for event in answer.events() {
            let Some(kv) = event.kv() else { continue };
            let put = match event.event_type() {
                EventType::Put => Some(Put {
                    created: kv.create_revision(),
                    owner: key::owner(kv),
                    // It does not depend on the name.
                    label: value::read(kv.value()).label,
                }),
                EventType::Delete => None,
            };
            let change = Change { key: kv.key().to_owned(), revision: kv.mod_revision(), put };
            self.endpoints.history().saw(self.known, change.revision);
            // Also fails if nothing waits any more.
            has_room = has_room && !matches!(changes.try_send(change), Err(TrySendError::Full(_)));
        }
        if !has_room {
            self.remove(id);
        }
    }
}

/// Returns `true` if the server refuses a watch because of the stream's token, and not because the user may not read the key.
fn is_out_of_date(answer: &WatchResponse) -> bool {
    let reasons = ["invalid auth token", "revision of auth store is old", "user name is empty"];
    answer.created() && answer.canceled() && reasons.iter().any(|why| answer.cancel_reason().contains(why))
}

fn options(arm: &Arm) -> WatchOptions {
    let options = WatchOptions::new().with_watch_id(arm.id);
    match &arm.range.end {
        Some(end) => options.with_range(end.as_str()),
        None => options,
    }
}
