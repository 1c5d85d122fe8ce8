//! A connection through the proxy.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::framing::{end_of, stream_of};
use super::settings::{Cut, Direction, Fault, Flow, Lose, Shared};

/// The pause between two attempts to reach the server.
const AGAIN: Duration = Duration::from_millis(20);

pub(super) struct Link {
    shared: Arc<Shared>,
    /// The number of cuts of all connections before this one began.
    cuts: u64,
    /// The cut of only this connection.
    cut: watch::Sender<Option<Cut>>,
    /// `true` once bytes were lost. No bytes are passed on after that.
    silent: [AtomicBool; 2],
    lost: Mutex<Option<LostAnswer>>,
    /// The streams whose answers are no longer passed on, because the client was sent their end.
    ended: Mutex<BTreeSet<[u8; 4]>>,
}

/// A request that was passed on, and whose response will be lost.
struct LostAnswer {
    request: Vec<u8>,
    then: Cut,
    done: oneshot::Sender<()>,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let cuts = shared.control.borrow().cuts;
        let silent = [AtomicBool::new(false), AtomicBool::new(false)];
        Link {
            shared,
            cuts,
            cut: watch::Sender::new(None),
            silent,
            lost: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let began = Instant::now();
        loop {
            let upstream = self.shared.control.borrow().upstream;
            match TcpStream::connect(upstream).await {
                Err(_) if began.elapsed() < self.shared.patience => sleep(AGAIN).await,
                connected => return connected,
            }
        }
    }

    pub(super) async fn run(self, mut client: TcpStream) {
        let Ok(mut server) = self.connect().await else {
            // As near to a refused connection as one that was taken can be.
            let _ = client.set_zero_linger();
            return;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let cut = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let pumps = async {
                tokio::try_join!(
                    self.pump(Direction::ToServer, from_client, to_server),
                    self.pump(Direction::ToClient, from_server, to_client),
                )
            };
            tokio::select! {
                biased;
                cut = self.wait_for_cut() => cut,
                _ = pumps => return,
            }
        };
        match cut {
            Cut::Reset => {
                let _ = (client.set_zero_linger(), server.set_zero_linger());
            }
            Cut::Fin => {
                tokio::join!(end(&mut client), end(&mut server));
            }
            // Not reached: the pumps know of it.
            Cut::Mute => {}
        }
    }

    /// Waits for a cut that ends the connection. A mute cut only silences it.
    async fn wait_for_cut(&self) -> Cut {
        let (mut own, mut all) = (self.cut.subscribe(), self.shared.control.subscribe());
        loop {
            let of_all = Some(all.borrow_and_update().clone()).filter(|all| all.cuts > self.cuts);
            let of_own = *own.borrow_and_update();
            match of_own.or(of_all.map(|all| all.cut)) {
                Some(Cut::Mute) => {
                    self.silent.iter().for_each(|silent| silent.store(true, Ordering::Relaxed))
                }
                Some(cut) => return cut,
                None => {}
            }
            tokio::select! {
                biased;
                _ = own.changed() => {}
                _ = all.changed() => {}
            }
        }
    }

    /// Reads as fast as possible, and passes bytes on as the flow allows.
    async fn pump(
        &self,
        direction: Direction,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
    ) -> io::Result<()> {
        let (queue, mut units) = mpsc::unbounded_channel();
        let read = async {
            // A broken connection is passed on like one that was ended.
            while let Ok(Some(unit)) = self.shared.framing.read(&mut from).await {
                let _ = queue.send((Instant::now(), unit));
            }
            drop(queue);
        };
        let write = async {
            for n in 0.. {
                let Some((at, unit)) = units.recv().await else { break };
                if self.may_pass(direction, at).await && self.admit(direction, n, &unit) {
                    to.write_all(&unit).await?;
                    if matches!(direction, Direction::ToClient)
                        && let Some(end) = self.end_stream(&unit)
                    {
                        to.write_all(&end).await?;
                    }
                    let count = match direction {
                        Direction::ToServer => &self.shared.to_server,
                        Direction::ToClient => &self.shared.to_client,
                    };
                    count.fetch_add(unit.len() as u64, Ordering::Relaxed);
                }
            }
            if !self.may_pass(direction, Instant::now()).await {
                // Who is silent does not say goodbye either.
                std::future::pending::<()>().await;
            }
            to.shutdown().await
        };
        tokio::join!(read, write).1
    }

    /// Waits as the flow requires. Returns `false` if the bytes are lost.
    async fn may_pass(&self, direction: Direction, at: Instant) -> bool {
        let silent = &self.silent[direction as usize];
        let mut control = self.shared.control.subscribe();
        loop {
            let flow = {
                let control = control.borrow_and_update();
                match direction {
                    Direction::ToServer => control.to_server,
                    Direction::ToClient => control.to_client,
                }
            };
            if silent.load(Ordering::Relaxed) {
                return false;
            }
            let until = match flow {
                Flow::Pass => return true,
                Flow::Swallow => {
                    silent.store(true, Ordering::Relaxed);
                    return false;
                }
                Flow::Hold => None,
                Flow::Delay(delay) if Instant::now() >= at + delay => return true,
                Flow::Delay(delay) => Some(at + delay),
            };
            tokio::select! {
                biased;
                _ = control.changed() => {}
                () = tokio::time::sleep_until(until.unwrap_or(at)), if until.is_some() => {}
            }
        }
    }

    /// Applies the staged fault. Returns `false` if this unit is lost.
    fn admit(&self, direction: Direction, n: usize, unit: &[u8]) -> bool {
        let framing = self.shared.framing;
        if !framing.is_request(n) {
            return true;
        }
        if matches!(direction, Direction::ToClient) && self.has_ended(unit) {
            return false;
        }
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        match direction {
            Direction::ToServer => match self.shared.take_fault(unit) {
                Some(Fault { lose: Lose::Request, then, done, .. }) => {
                    self.lose(then, done);
                    false
                }
                Some(Fault { lose: Lose::Answer, then, done, .. }) => {
                    *lost = Some(LostAnswer { request: unit.to_vec(), then, done });
                    true
                }
                None => true,
            },
            Direction::ToClient => match lost.take_if(|lost| framing.answers(&lost.request, unit)) {
                Some(LostAnswer { then, done, .. }) => {
                    self.lose(then, done);
                    false
                }
                None => true,
            },
        }
    }

    /// Returns the frame that ends the stream of an answer which was just passed on, if the stream has to end.
    fn end_stream(&self, answer: &[u8]) -> Option<Vec<u8>> {
        if !self.shared.ends_stream(answer) {
            return None;
        }
        let stream = stream_of(answer)?;
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
        Some(end_of(stream))
    }

    /// Returns `true` for an answer on a stream that the client believes to be over.
    fn has_ended(&self, answer: &[u8]) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        !ended.is_empty() && stream_of(answer).is_some_and(|stream| ended.contains(&stream))
    }

    fn lose(&self, then: Cut, done: oneshot::Sender<()>) {
        // At once, not when the task that waits for the cut is next run: what follows is lost, too.
        self.silent.iter().for_each(|silent| silent.store(true, Ordering::Relaxed));
        self.cut.send_replace(Some(then));
        let _ = done.send(());
    }
}

/// Says goodbye and waits for the other's: closing with bytes unread would be a reset.
async fn end(stream: &mut TcpStream) {
    let _ = stream.shutdown().await;
    let rest = async {
        let mut bytes = [0; 1024];
        while matches!(stream.read(&mut bytes).await, Ok(n) if n > 0) {}
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
}
