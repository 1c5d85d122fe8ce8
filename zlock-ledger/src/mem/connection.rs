//! A connection: requests go to the store in their order, and answers come back.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use zlock_core::{Mutex, SessionId};

use super::fault::{Arrival, Fate, Operation};
use super::link::{Link, Mode, Wiring};
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

    pub(crate) async fn closed(&self) {
        self.deliveries.closed().await;
    }
}

/// The client's end of a connection. What was sent arrives after it was dropped, too, unless the link breaks.
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) link: Arc<Link>,
    pub(crate) server: Arc<Server>,
    /// The life of the server in which it was opened.
    pub(crate) life: u64,
    pub(crate) outbox: Outbox,
    requests: mpsc::UnboundedSender<Request>,
    /// When the last request that was sent arrives.
    last_due: Mutex<Option<Instant>>,
}

impl Connection {
    /// Opens a connection, whose messages travel on this runtime.
    pub(crate) fn open(server: &Arc<Server>, link: &Arc<Link>, runtime: &Handle) -> Result<Self, Fault> {
        let (lives, wiring) = (server.life(), link.wiring.subscribe());
        let (life, now) = (*lives.borrow(), *wiring.borrow());
        if now.mode == Mode::Down || life % 2 == 1 {
            return Err(Fault::NotSent("the store refuses the connection".into()));
        }
        if !link.connected(server.settings.limits.connections) {
            return Err(Fault::Unexpected("more connections than the limit".into()));
        }
        let (requests, inbox) = mpsc::unbounded_channel();
        let (deliveries, outbox) = mpsc::unbounded_channel();
        let connection = Connection {
            number: server.next_number(),
            link: link.clone(),
            server: server.clone(),
            life,
            outbox: Outbox { link: link.clone(), deliveries },
            requests,
            last_due: Mutex::new(None),
        };
        let broken = broken((lives, life), (wiring.clone(), now.breaks));
        let route = Route {
            number: connection.number,
            server: server.clone(),
            outbox: connection.outbox.clone(),
            wiring: wiring.clone(),
        };
        runtime.spawn(async move {
            let number = route.number;
            let server = route.server.clone();
            let carry = async { tokio::join!(route.carry(inbox), deliver(outbox, wiring)) };
            tokio::select! {
                biased;
                () = broken => {}
                _ = carry => {}
            }
            server.stop_listening(number);
        });
        Ok(connection)
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
        let arrival = Arrival { operation, session, scopes, link: self.link.number };
        {
            let mut last_due = self.last_due.lock();
            let arrives = self.link.request_arrives();
            let due = last_due.map_or(arrives, |last| last.max(arrives));
            *last_due = Some(due);
            let sent = self.requests.send(Request { arrival, due, execute });
            sent.map_err(|_| Fault::NotSent("the connection is broken".into()))?;
        }
        let unknown = |why: &str| Err(Fault::Unknown(why.into()));
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| unknown("no response")),
            // What the store has accepted, it goes on with.
            () = self.outbox.closed() => unknown("the connection has broken"),
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
        let (server, link, life) = (self.server.clone(), self.link.clone(), self.life);
        let run = async move {
            let service_time = link.service_time();
            if !service_time.is_zero() {
                tokio::time::sleep(service_time).await;
            }
            server.in_life(life, work)?
        };
        self.ask(operation, session, scopes, run).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.disconnected();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} of link {})", self.number, self.link.number)
    }
}

/// The way of the requests to the store.
struct Route {
    number: u64,
    server: Arc<Server>,
    outbox: Outbox,
    wiring: watch::Receiver<Wiring>,
}

impl Route {
    /// Brings the requests to the store one after the other, until the client gives up the connection or it breaks.
    async fn carry(mut self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        while let Some(request) = inbox.recv().await {
            let open = |mode| matches!(mode, Mode::Up | Mode::Mute);
            arrive(request.due, &mut self.wiring, open).await;
            let fate = self.server.arrive(&request.arrival);
            let refusal = match fate {
                Fate::LoseRequest => break,
                Fate::Refuse => Some(Fault::Refused("permission denied".into())),
                Fate::Pass | Fate::LoseAnswer => None,
            };
            // A task of its own: the store finishes what it has accepted, also if the connection breaks.
            let executed = tokio::spawn((request.execute)(refusal)).await;
            match executed {
                Ok(deliver) if fate != Fate::LoseAnswer => self.outbox.send(deliver),
                _ => break,
            }
        }
        self.server.stop_listening(self.number);
    }
}

/// Delivers what has arrived at the client, in its order.
async fn deliver(
    mut outbox: mpsc::UnboundedReceiver<(Instant, Deliver)>,
    mut wiring: watch::Receiver<Wiring>,
) {
    while let Some((due, deliver)) = outbox.recv().await {
        arrive(due, &mut wiring, |mode| mode == Mode::Up).await;
        deliver();
    }
}

/// Waits until a message that is due at this time gets through.
async fn arrive(due: Instant, wiring: &mut watch::Receiver<Wiring>, open: impl Fn(Mode) -> bool) {
    if due > Instant::now() {
        sleep_until(due).await;
    }
    // It fails if the link is gone, and with it the client.
    let _ = wiring.wait_for(|wiring| open(wiring.mode)).await;
}

/// Completes when the connection breaks.
async fn broken(
    (mut lives, life): (watch::Receiver<u64>, u64),
    (mut wiring, breaks): (watch::Receiver<Wiring>, u64),
) {
    tokio::select! {
        biased;
        _ = lives.wait_for(|now| *now != life) => {}
        _ = wiring.wait_for(|now| now.breaks != breaks) => {}
    }
}
