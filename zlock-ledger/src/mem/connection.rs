//! A connection: requests go to the store in their order, and answers come back.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use zlock_core::{Flag, Mutex, SessionId};

use super::fault::{Arrival, Fate, Operation};
use super::link::{Link, Mode};
use super::server::Server;
use super::state::State;
use crate::{Fault, Scope};

/// Gives an answer or a hint to the client.
pub(crate) type Deliver = Box<dyn FnOnce() + Send>;

/// Executes a request, or answers it with a fault instead.
type Execute = Box<dyn FnOnce(Option<Fault>) -> BoxFuture<'static, Deliver> + Send>;

struct Request {
    arrival: Arrival,
    /// When it arrives at the store.
    due: Instant,
    execute: Execute,
}

/// What is on its way to the client, each with the time of its arrival.
#[derive(Clone)]
pub(crate) struct Outbox {
    link: Arc<Link>,
    deliveries: mpsc::UnboundedSender<(Instant, Deliver)>,
}

impl Outbox {
    pub(crate) fn send(&self, deliver: Deliver) {
        // Nobody receives it any more if the connection is broken.
        let _ = self.deliveries.send((self.link.answer_arrives(), deliver));
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.deliveries.is_closed()
    }
}

/// The client's end of a connection. What was sent arrives after it was dropped, too, unless the link breaks.
pub(crate) struct Connection {
    pub(crate) route: Arc<Route>,
    pub(crate) outbox: Outbox,
    /// `None` once the client has closed it.
    requests: Mutex<Option<mpsc::UnboundedSender<Request>>>,
    is_closed: Flag,
}

/// The way between a client and the store.
pub(crate) struct Route {
    pub(crate) number: u64,
    pub(crate) link: Arc<Link>,
    pub(crate) server: Arc<Server>,
    /// The life of the server in which the connection was opened.
    pub(crate) life: u64,
    /// How often the link had broken then.
    breaks: u64,
}

impl Connection {
    /// Opens a connection, whose messages travel on this runtime.
    pub(crate) fn open(server: &Arc<Server>, link: &Arc<Link>, runtime: &Handle) -> Result<Self, Fault> {
        let (life, wiring) = (server.life.get(), link.wiring.get());
        if wiring.mode == Mode::Down || life % 2 == 1 {
            return Err(Fault::NotSent("the store refuses the connection".into()));
        }
        if !link.connected(server.settings.limits.connections) {
            return Err(Fault::Unexpected("more connections than the limit".into()));
        }
        let route = Arc::new(Route {
            number: server.next_number(),
            link: link.clone(),
            server: server.clone(),
            life,
            breaks: wiring.breaks,
        });
        let (requests, inbox) = mpsc::unbounded_channel();
        let (deliveries, on_the_way) = mpsc::unbounded_channel();
        let outbox = Outbox { link: link.clone(), deliveries };
        runtime.spawn(route.clone().run(inbox, outbox.clone(), on_the_way));
        Ok(Connection { route, outbox, requests: Mutex::new(Some(requests)), is_closed: Flag::default() })
    }

    /// Sends a request when first polled, and waits for the answer.
    ///
    /// # Cancel safety
    /// The request is executed nevertheless.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        operation: Operation,
        session: Option<SessionId>,
        scopes: Vec<Scope>,
        run: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (to, answer) = oneshot::channel();
        let execute: Execute = Box::new(move |fault| {
            Box::pin(async move {
                let result = match fault {
                    Some(fault) => Err(fault),
                    None => run.await,
                };
                Box::new(move || drop(to.send(result))) as Deliver
            })
        });
        let link = &self.route.link;
        let arrival = Arrival { operation, session, scopes, link: link.number };
        let request = Request { arrival, due: link.request_arrives(), execute };
        let sent = self.requests.lock().as_ref().is_some_and(|requests| requests.send(request).is_ok());
        if !sent {
            return Err(Fault::NotSent("the connection is broken".into()));
        }
        let unknown = |why: &str| Err(Fault::Unknown(why.into()));
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| unknown("no response")),
            // What the store has accepted, it goes on with.
            () = self.closed() => unknown("the connection has broken"),
        }
    }

    /// Closes the client's end.
    pub(crate) fn close(&self) {
        if self.requests.lock().take().is_some() {
            self.route.link.disconnected();
        }
        self.is_closed.raise();
    }

    /// Completes when the connection has broken, or the client has closed it.
    pub(crate) async fn closed(&self) {
        tokio::select! {
            biased;
            () = self.is_closed.raised() => {}
            () = self.outbox.deliveries.closed() => {}
        }
    }

    /// Sends a request that takes effect in one step, after the service time.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        session: Option<SessionId>,
        scopes: Vec<Scope>,
        work: impl FnOnce(&mut State) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let route = self.route.clone();
        let run = async move {
            let service_time = route.link.service_time();
            if !service_time.is_zero() {
                tokio::time::sleep(service_time).await;
            }
            route.server.in_life(route.life, work)?
        };
        self.ask(operation, session, scopes, run).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} of link {})", self.route.number, self.route.link.number)
    }
}

impl Route {
    async fn run(
        self: Arc<Self>,
        inbox: mpsc::UnboundedReceiver<Request>,
        outbox: Outbox,
        on_the_way: mpsc::UnboundedReceiver<(Instant, Deliver)>,
    ) {
        tokio::select! {
            biased;
            () = self.broken() => {}
            _ = async { tokio::join!(self.carry(inbox, outbox), self.deliver(on_the_way)) } => {}
        }
        self.server.stop_listening(self.number);
    }

    /// Brings the requests to the store one after the other, until the client gives up the connection or it breaks.
    async fn carry(&self, mut inbox: mpsc::UnboundedReceiver<Request>, outbox: Outbox) {
        while let Some(request) = inbox.recv().await {
            self.arrive(request.due, |mode| matches!(mode, Mode::Up | Mode::Mute)).await;
            let fate = self.server.arrive(&request.arrival);
            let refusal = match fate {
                Fate::LoseRequest => break,
                Fate::Refuse => Some(Fault::Refused("permission denied".into())),
                Fate::Pass | Fate::LoseAnswer => None,
            };
            // A task of its own: the store finishes what it has accepted, also if the connection breaks.
            let executed = tokio::spawn((request.execute)(refusal)).await;
            match executed {
                Ok(deliver) if fate != Fate::LoseAnswer => outbox.send(deliver),
                _ => break,
            }
        }
        self.server.stop_listening(self.number);
    }

    /// Delivers what has arrived at the client, in its order.
    async fn deliver(&self, mut on_the_way: mpsc::UnboundedReceiver<(Instant, Deliver)>) {
        while let Some((due, deliver)) = on_the_way.recv().await {
            self.arrive(due, |mode| mode == Mode::Up).await;
            deliver();
        }
    }

    /// Waits until a message that is due at this time gets through.
    async fn arrive(&self, due: Instant, passes: impl Fn(Mode) -> bool) {
        if due > Instant::now() {
            sleep_until(due).await;
        }
        self.link.wiring.wait_for(|wiring| passes(wiring.mode)).await;
    }

    /// Completes when the connection breaks.
    async fn broken(&self) {
        tokio::select! {
            biased;
            () = self.server.life.wait_for(|life| life != self.life) => {}
            () = self.link.wiring.wait_for(|wiring| wiring.breaks != self.breaks) => {}
        }
    }
}
