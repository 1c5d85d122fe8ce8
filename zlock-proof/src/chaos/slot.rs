//! A client's slot: its links to the servers, and its current process.

use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::sleep;
use zlock_testkit::{Cut, FaultProxy, Process};

use super::clock::{nanos, now};
use super::locks::Manner;
use super::plan::{Break, ClientFault};
use super::told::{Told, history};
use super::world::World;
use crate::history::{Ending, History, What};

pub(crate) struct Slot {
    number: usize,
    /// The number of processes so far.
    count: u64,
    seed: u64,
    links: Vec<FaultProxy>,
    world: Arc<World>,
}

impl Slot {
    pub(crate) async fn start(number: usize, seed: u64, world: Arc<World>) -> Self {
        let mut links = Vec::new();
        for server in world.servers(number) {
            links.push(world.cluster.link(server).await);
        }
        let mut slot = Slot { number, count: 0, seed, links, world };
        slot.spawn();
        slot
    }

    /// Returns the name of the process.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.prefix(), self.count)
    }

    /// Returns the common prefix of the names of this slot's processes.
    fn prefix(&self) -> String {
        format!("c{}-", self.number)
    }

    pub(crate) fn manner(&self) -> Manner {
        Manner::of(self.number)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let prefix = self.prefix();
        (1..=self.count).map(move |count| format!("{prefix}{count}"))
    }

    fn spawn(&mut self) {
        self.count += 1;
        let hosts: Vec<_> = self.links.iter().map(FaultProxy::connect_string).collect();
        let told = Told {
            url: self.world.cluster.url(&hosts, self.world.session),
            name: self.name(),
            folder: self.world.folder.clone(),
            seed: self.seed.wrapping_add(self.count),
            manner: self.manner(),
            session: self.world.session,
        };
        let program: PathBuf = std::env::current_exe().expect("the path of this program");
        *self.process() = Some(Process::spawn(program, &told.to_args(), &[]));
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.world.process(self.number)
    }

    /// Carries out a fault until it is over.
    pub(crate) async fn suffer(&mut self, fault: ClientFault) {
        if !self.process().as_ref().is_some_and(Process::is_running) {
            self.world.violation(format!("{} exited unexpectedly", self.name()));
            self.spawn();
        }
        self.world.say(format!("{}: {fault}", self.name()));
        let session = self.world.session;
        let from = now();
        match fault {
            ClientFault::Kill(away) => {
                *self.process() = None;
                sleep(away).await;
                self.spawn();
            }
            ClientFault::Pause(time) => {
                self.process().iter().for_each(Process::pause);
                sleep(time).await;
                self.process().iter().for_each(Process::resume);
                self.disturbed(from, Duration::ZERO);
            }
            ClientFault::Links(one, how, time) => {
                let links = || self.links.iter().enumerate().filter(|(i, _)| one.is_none_or(|one| one == *i));
                for (_, link) in links() {
                    hurt(link, how).await;
                }
                // Without one link, the client needs time to notice and to use another.
                if one.is_some() {
                    self.disturbed(from, session * 2 / 5);
                }
                sleep(time).await;
                for (_, link) in links() {
                    link.heal().await;
                }
                match one.filter(|_| !self.world.cluster.has_one_primary()) {
                    None => self.disturbed(from, session / 5),
                    Some(server) => self.world.silent(from, Some(self.prefix()), server),
                }
            }
            ClientFault::Cut(cut) => {
                self.links.iter().for_each(|link| link.cut(cut));
                self.disturbed(from, session / 5);
            }
            ClientFault::EndSession => self.end_session().await,
        }
    }

    /// Records a disturbance from then until now, plus the time to recover.
    fn disturbed(&self, from: u64, and: Duration) {
        self.world.disturbed(from, and, Some(self.prefix()));
    }

    async fn end_session(&self) {
        let Some(session) = self.session() else { return };
        let asked = now();
        if self.world.cluster.end_session(session).await {
            let done = now();
            // The client notices with its next heartbeat, or at its deadline without a response. A server that does not respond
            // delays the end: until it is confirmed, heartbeats may still extend the deadline.
            let until = done + nanos(self.world.session);
            let took = Duration::from_nanos(done - asked);
            self.world.say(format!("{}: session {session:#x} was ended after {took:?}", self.name()));
            self.world.ended(Ending { session, asked, done, until });
        } else {
            self.world.say(format!("{}: session {session:#x} had ended before", self.name()));
        }
    }

    /// Returns the live session that the process has recorded.
    fn session(&self) -> Option<u64> {
        let text = std::fs::read_to_string(history(&self.world.folder, &self.name())).ok()?;
        let history = History::parse("", &text).ok()?;
        let last = history.events.iter().rev().find_map(|event| match &event.what {
            What::Session { session, state, .. } => Some((*session, state == "Connected")),
            _ => None,
        })?;
        last.1.then_some(last.0)
    }

    /// Heals everything and lets the process end. Returns `true` if it ended successfully and in time.
    pub(crate) async fn stop(self, within: Duration) -> bool {
        let Some(process) = self.process().take() else { return false };
        matches!(tokio::time::timeout(within, process.wait()).await, Ok(0))
    }
}

/// Returns the number of the slot of a process with this name.
pub(crate) fn slot_of(name: &str) -> Option<usize> {
    name.strip_prefix('c')?.split_once('-')?.0.parse().ok()
}

async fn hurt(link: &FaultProxy, how: Break) {
    match how {
        Break::ToServer(flow) => link.to_server(flow),
        Break::ToClient(flow) => link.to_client(flow),
        Break::Both(flow) => link.both(flow),
        Break::Refuse => {
            link.refuse().await;
            link.cut(Cut::Reset);
        }
        Break::Freeze => link.freeze().await,
    }
}
