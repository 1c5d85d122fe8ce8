//! Curator, kazoo and zlock on one path, zlock with and without hand-off: no two workers hold the lock at the same time, all
//! get turns, and nothing is left, although holders and waiters of each kind are killed.
//!
//! The evidence is a [`Journal`].

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::{Handoff, InterProcessMutex};

use super::peer::{self, Peer};
use zlock_testkit::zk::{Observer, connect, release};
use zlock_testkit::{Journal, Process, ZooKeeper, have, have_zookeeper, limit_to, report};

const PATH: &str = "/mixed";
/// Long enough for the peers, which have no deadline, to keep the session on a busy machine.
const SESSION: Duration = Duration::from_secs(6);
const LIMIT: Duration = Duration::from_secs(300);
/// The minimum number of holds.
const ROUNDS: usize = 1000;
/// Processes of each kind.
const PROCESSES: usize = 2;
const HANDOFF: Handoff = Handoff::within(Duration::from_millis(20));

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Curator,
    Kazoo,
    Zlock,
    ZlockHandoff,
}

const KINDS: [Kind; 4] = [Kind::Curator, Kind::Kazoo, Kind::Zlock, Kind::ZlockHandoff];

impl Kind {
    /// The number of workers of one process that use the lock concurrently.
    fn workers(self) -> usize {
        match self {
            Kind::Curator => 2,
            // A kazoo lock belongs to a Python thread, and only one of these runs at a time.
            Kind::Kazoo => 1,
            Kind::Zlock | Kind::ZlockHandoff => 4,
        }
    }
}

/// A process that acquires the lock again and again until the stop file exists.
struct Member {
    kind: Kind,
    name: String,
    runs: Runs,
}

enum Runs {
    Peer(Peer),
    Ours(Process),
}

impl Member {
    async fn start(kind: Kind, number: usize, server: ZooKeeper, journal: Journal) -> Self {
        let (name, folder) = (format!("{kind:?}-{number}"), journal.folder().to_str().unwrap());
        let theirs = match kind {
            Kind::Curator => Some(peer::Kind::Curator),
            Kind::Kazoo => Some(peer::Kind::Kazoo),
            Kind::Zlock | Kind::ZlockHandoff => None,
        };
        let runs = if let Some(theirs) = theirs {
            let mut peer = Peer::start(theirs, &server, PATH, SESSION).await;
            peer.tell(&format!("crowd {name} {} {folder}", kind.workers())).await;
            Runs::Peer(peer)
        } else {
            let hosts = server.connect_string();
            let told = [("ZLOCK_CHILD_HOSTS", hosts.as_str()), ("ZLOCK_CHILD_FOLDER", folder)];
            Runs::Ours(Process::spawn_test(
                concat!(module_path!(), "::child_of_the_fleet"),
                &[told[0], told[1], ("ZLOCK_CHILD_NAME", &name)],
            ))
        };
        Member { kind, name, runs }
    }

    fn process(&self) -> &Process {
        match &self.runs {
            Runs::Peer(peer) => &peer.process,
            Runs::Ours(process) => process,
        }
    }

    fn workers(&self) -> impl Iterator<Item = String> {
        (0..self.kind.workers()).map(|n| format!("{}.{n}", self.name))
    }

    /// Waits for the end of the process. The stop file must exist.
    async fn end(self) {
        let code = match self.runs {
            Runs::Peer(mut peer) => {
                peer.expect("done").await;
                peer.end().await
            }
            Runs::Ours(process) => process.wait().await,
        };
        assert_eq!(code, 0, "{}", self.name);
    }
}

/// In a separate process.
#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn child_of_the_fleet() {
    let told = |name: &str| std::env::var(name).unwrap();
    let (journal, name) = (Journal::open(told("ZLOCK_CHILD_FOLDER")), told("ZLOCK_CHILD_NAME"));
    let client = connect(told("ZLOCK_CHILD_HOSTS"), SESSION).await;
    let mut mutex = client.mutex(PATH).unwrap();
    let kind = KINDS.into_iter().find(|kind| name.starts_with(&format!("{kind:?}-"))).unwrap();
    if kind == Kind::ZlockHandoff {
        mutex = mutex.with_handoff(HANDOFF);
    }
    let mut workers = JoinSet::new();
    for number in 0..kind.workers() {
        workers.spawn(work(mutex.clone(), format!("{name}.{number}"), journal.clone()));
    }
    while workers.join_next().await.transpose().unwrap().is_some() {}
    client.close().await.unwrap();
}

async fn work(mutex: InterProcessMutex, worker: String, journal: Journal) {
    for round in 0_u32.. {
        if journal.is_stopped() {
            return;
        }
        journal.note(&format!("ask {worker}"));
        let guard = mutex.acquire().await.unwrap();
        journal.hold(&worker).await;
        if round % 3 == 0 { drop(guard) } else { release(guard).await }
    }
}

struct Fleet<'a> {
    server: &'a ZooKeeper,
    journal: &'a Journal,
    members: Vec<Member>,
    started: usize,
    /// By kind: the numbers of workers that were killed while they held, and while they waited.
    killed: BTreeMap<String, (usize, usize)>,
}

impl Fleet<'_> {
    async fn start(&mut self, kinds: &[Kind]) {
        let start = |(&kind, number)| Member::start(kind, number, self.server.clone(), self.journal.clone());
        let starts: JoinSet<_> = kinds.iter().zip(self.started..).map(start).collect();
        self.members.extend(starts.join_all().await);
        self.started += kinds.len();
    }

    /// Kills a process of this kind in the middle of its work: while one of its workers holds the lock, or while some wait for
    /// it and none holds it.
    async fn kill(&mut self, kind: Kind, holds: bool) {
        for turn in 0.. {
            let of_the_kind: Vec<_> =
                (0..self.members.len()).filter(|i| self.members[*i].kind == kind).collect();
            let at = of_the_kind[turn % of_the_kind.len()];
            let member = &self.members[at];
            // So that nothing happens between reading the journal and killing the process.
            member.process().pause();
            let events = self.journal.read();
            let count = |what| member.workers().filter(|worker| events.last(worker) == Some(what)).count();
            let (inside, asked) = (count("in"), count("ask"));
            if if holds { inside == 1 } else { inside == 0 && asked > 0 } {
                let member = self.members.swap_remove(at);
                member.process().kill();
                while member.process().is_running() {
                    sleep(Duration::from_millis(1)).await;
                }
                self.journal.note(&format!("killed {}", member.name));
                let killed = self.killed.entry(format!("{kind:?}")).or_default();
                *killed = (killed.0 + inside, killed.1 + asked);
                return;
            }
            member.process().resume();
            sleep(Duration::from_micros(500)).await;
        }
    }

    /// Waits until every live worker has held the lock since the last process was killed.
    async fn everybody_has_a_turn(&self) {
        let workers: Vec<_> = self.members.iter().flat_map(Member::workers).collect();
        loop {
            let events = self.journal.read();
            if workers.iter().all(|worker| events.had_a_turn(worker)) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn a_mixed_fleet_some_of_which_are_killed() {
    let missing = peer::Kind::Curator.missing().or_else(|| peer::Kind::Kazoo.missing());
    if !have_zookeeper() || !have(missing.as_deref()) {
        return;
    }
    limit_to(LIMIT, async {
        let server = &ZooKeeper::start().await;
        let folder = tempfile::tempdir().unwrap();
        let journal = &Journal::begin(folder.path());
        let mut fleet = Fleet { server, journal, members: Vec::new(), started: 0, killed: BTreeMap::new() };
        fleet.start(&KINDS.repeat(PROCESSES)).await;
        fleet.everybody_has_a_turn().await;
        for holder in KINDS {
            fleet.kill(holder, true).await;
            // No worker makes progress until the killed holder's session ends.
            for waiter in KINDS.into_iter().filter(|kind| *kind != holder) {
                fleet.kill(waiter, false).await;
            }
            fleet.start(&KINDS).await;
            fleet.everybody_has_a_turn().await;
        }
        while journal.read().rounds().values().sum::<usize>() < ROUNDS {
            sleep(Duration::from_millis(50)).await;
        }
        journal.stop();
        let ends: JoinSet<_> = fleet.members.into_iter().map(Member::end).collect();
        ends.join_all().await;

        let events = journal.read();
        let ((overlaps, lost), rounds) = (events.wrong(), events.rounds());
        report(format!(
            "{} rounds: {rounds:?}; workers killed (while they held, while they waited): {:?}; overlaps: {overlaps}, \
             counts lost: {lost}",
            rounds.values().sum::<usize>(),
            fleet.killed
        ));
        assert_eq!((overlaps, lost), (0, 0));
        // Waits for the end of the last killed session, if necessary.
        let observer = Observer::connect(server.connect_string()).await;
        observer.wait_for_children(PATH, 0).await;
        let left = server.mntr().await;
        assert_eq!((left["ephemerals_count"], left["watch_count"]), (0.0, 0.0));
    })
    .await;
}
