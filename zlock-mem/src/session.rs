//! The client's side of its sessions: opens them, keeps them alive, and notices their end.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zlock_core::{Background, CloseReason, OwnNodes, Session, SessionEvents, SessionId, SessionPublisher};

use crate::link::ClientId;
use crate::options::MemOptions;
use crate::request::{Answer, Request};
use crate::server::Server;
use crate::state::Refused;

/// How long a client waits before it connects again when an attempt was lost without a sign of why.
const RECONNECT: Duration = Duration::from_millis(100);

/// How long a connection takes. Not nothing, so that whoever watches the session sees the outage.
const DIAL: Duration = Duration::from_millis(1);

/// One client. The backend owns it; its session task shares it, and ends when the view is closed.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) server: Arc<Server>,
    pub(crate) client: ClientId,
    pub(crate) options: MemOptions,
    pub(crate) publisher: SessionPublisher,
    pub(crate) background: Background,
    pub(crate) own: OwnNodes,
    /// Told when the connection broke, or when another attempt may be worth it.
    signal: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Asked {
    Answer(Answer),
    /// No answer will come. If it was a write, its outcome is not known.
    Lost,
    /// The session in which it was sent is over.
    Over,
}

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Pending {
    epoch: u64,
    answer: Result<oneshot::Receiver<Answer>, Refused>,
}

impl Pending {
    /// Whether there was a connection to send it on.
    pub(crate) fn was_sent(&self) -> bool {
        self.answer.is_ok()
    }
}

impl Shared {
    pub(crate) fn new(server: Arc<Server>, options: MemOptions) -> Arc<Self> {
        let signal = Arc::new(Notify::new());
        let client = server.with(|state, _| state.add_client(signal.clone()));
        let shared = Arc::new(Shared {
            server,
            client,
            options,
            publisher: SessionPublisher::new(),
            background: Background::new(),
            own: OwnNodes::default(),
            signal,
            task: Mutex::default(),
        });
        if Handle::try_current().is_ok() {
            shared.connect_now();
            shared.keep_task();
        }
        shared
    }

    /// Sends a request. Requests go out in the order of the calls.
    pub(crate) fn send(&self, session: Session, request: Request) -> Pending {
        let answer = self.server.send(self.client, Some(session.id), request);
        if answer.is_err() {
            self.publisher.suspend(session.epoch);
        }
        Pending { epoch: session.epoch, answer }
    }

    /// Waits for the answer. It does not extend the deadline: only the session task does that, and it also runs the
    /// background jobs. If its runtime is not driven, the session must end, whatever calls other runtimes make.
    pub(crate) async fn answer(&self, pending: Pending) -> Asked {
        let Pending { epoch, answer } = pending;
        let Ok(mut answer) = answer else { return Asked::Lost };
        // The request is out, and has most likely taken effect: a caller that goes away goes away now.
        pending_once().await;
        let answer = match answer.try_recv() {
            Ok(answer) => Ok(answer),
            Err(TryRecvError::Closed) => return Asked::Lost,
            Err(TryRecvError::Empty) => {
                let mut events = self.events();
                tokio::select! {
                    biased;
                    answer = answer => answer,
                    _ = events.over(epoch) => return Asked::Over,
                }
            }
        };
        match answer {
            Err(_) => Asked::Lost,
            Ok(Answer::SessionOver) => {
                self.publisher.lose(epoch);
                Asked::Over
            }
            Ok(answer) if self.events().is_live(epoch) => Asked::Answer(answer),
            Ok(_) => Asked::Over,
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&self, session: Session, request: Request) -> Asked {
        let pending = self.send(session, request);
        self.answer(pending).await
    }

    /// Resolves when the client is closed.
    pub(crate) async fn closed(&self) {
        self.events().closed().await;
    }

    pub(crate) fn events(&self) -> SessionEvents {
        self.publisher.subscribe()
    }

    /// Starts the session task if there is none, or the runtime that it ran on has ended.
    pub(crate) fn keep_task(self: &Arc<Self>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (shared, background) = (self.clone(), self.background.run(&self.publisher));
            *task = Some(runtime.spawn(async move {
                tokio::select! {
                    biased;
                    () = shared.closed() => {}
                    () = shared.keep_sessions() => {}
                    never = background => match never {},
                }
            }));
        }
    }

    /// Closes the view, and the session if the server can be told.
    pub(crate) fn close(&self) -> Option<oneshot::Receiver<Answer>> {
        let session = self.publisher.last_seen();
        self.publisher.close(CloseReason::Requested);
        self.background.close();
        self.own.clear();
        if session.epoch == 0 {
            return None;
        }
        self.server.send(self.client, Some(session.id), Request::Close).ok()
    }

    /// Connects without waiting, if the server answers at once.
    fn connect_now(&self) {
        let sent = Instant::now();
        let request = Request::Connect { timeout: self.options.session_timeout };
        if let Ok(mut answer) = self.server.send(self.client, None, request)
            && let Ok(Answer::Session(id)) = answer.try_recv()
        {
            self.publisher.establish(id, sent + self.options.certain());
        }
    }

    async fn keep_sessions(&self) {
        loop {
            let session = self.publisher.current();
            if session.is_live() {
                self.keep(session).await;
            } else {
                self.own.clear();
                self.establish().await;
            }
        }
    }

    /// Opens the next session; the server closes the one before.
    async fn establish(&self) {
        loop {
            let sent = Instant::now();
            let request = Request::Connect { timeout: self.options.session_timeout };
            match self.connect(None, request).await {
                Some(Answer::Session(id)) => {
                    let epoch = self.publisher.establish(id, sent + self.options.certain());
                    tracing::debug!(session = %id, ?epoch, "session established");
                    return;
                }
                Some(_) => sleep(RECONNECT).await,
                None => {}
            }
        }
    }

    /// Keeps one session alive until it is over.
    async fn keep(&self, session: Session) {
        let mut events = self.events();
        tokio::select! {
            biased;
            _ = events.over(session.epoch) => {}
            () = self.beat(session) => {}
        }
        tracing::debug!(session = %session.id, epoch = session.epoch, "session over");
    }

    async fn beat(&self, session: Session) {
        let interval = self.options.interval();
        let mut next = Instant::now() + interval;
        loop {
            tokio::select! {
                biased;
                () = self.signal.notified() => {}
                () = sleep_until(next) => {}
            }
            let mut connected = self.is_connected();
            if connected && Instant::now() >= next {
                next = Instant::now() + interval;
                connected = self.heartbeat(session).await;
            }
            if !connected && !self.resume(session).await {
                return;
            }
        }
    }

    /// One heartbeat; `false` if it was not answered in time.
    async fn heartbeat(&self, session: Session) -> bool {
        let (mark, sent) = (self.own.mark(), Instant::now());
        match timeout(self.options.interval(), self.ask(session, Request::Heartbeat)).await {
            Ok(Asked::Answer(Answer::NodeIds(node_ids))) => {
                self.own.compare(mark, &node_ids);
                self.publisher.extend(session.epoch, sent + self.options.certain())
            }
            _ => false,
        }
    }

    /// Connects again with the same session; `false` if it is over.
    async fn resume(&self, session: Session) -> bool {
        tracing::debug!(session = %session.id, "connection lost");
        self.publisher.suspend(session.epoch);
        loop {
            let sent = Instant::now();
            match self.connect(Some(session.id), Request::Resume).await {
                Some(Answer::Done) => {
                    return self.publisher.extend(session.epoch, sent + self.options.certain())
                        && self.publisher.resume(session.epoch);
                }
                Some(_) => {
                    self.publisher.lose(session.epoch);
                    return false;
                }
                None => {}
            }
        }
    }

    /// One attempt at a new connection, after the old one is given up. `None`: try again.
    async fn connect(&self, session: Option<SessionId>, request: Request) -> Option<Answer> {
        self.hang_up();
        sleep(DIAL).await;
        match self.server.send(self.client, session, request) {
            Err(Refused) => {
                self.signal.notified().await;
                None
            }
            Ok(answer) => match timeout(self.options.interval(), answer).await {
                Ok(Ok(answer)) => Some(answer),
                Ok(Err(_)) => {
                    sleep(RECONNECT).await;
                    None
                }
                Err(_) => None,
            },
        }
    }

    fn is_connected(&self) -> bool {
        self.server.lock().links.get(&self.client).is_some_and(|link| link.connected)
    }

    fn hang_up(&self) {
        self.server.with(|state, _| {
            if let Some(link) = state.links.get_mut(&self.client) {
                link.hang_up();
            }
        });
    }
}

/// Is polled twice. Unlike tokio's `yield_now` it does not make the runtime look for events in between.
async fn pending_once() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
