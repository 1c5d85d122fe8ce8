//! Curator, kazoo and zlock on one path, zlock with and without hand-off: no two workers hold the lock at the same time, all
//! get turns, and nothing is left, although holders and waiters of each kind are killed. The same for elections: candidates of
//! Curator's `LeaderLatch` and of zlock.
//!
//! The evidence is a [`Journal`].

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::{Handoff, Lock, LockGuard, Release};

use super::peer::{self, Peer};
use zlock_testkit::zk::{Observer, connect};
use zlock_testkit::{Journal, Process, ZooKeeper, have, have_zookeeper, limit_to_if, report};

const PATH: &str = "/mixed";
/// Long enough for the peers, which have no deadline, to keep the session on a busy machine.
const SESSION: Duration = Duration::from_secs(6);
const LIMIT: Duration = Duration::from_secs(300);
/// The minimum number of holds.
const ROUNDS: usize = 1000;
/// The minimum number of terms.
const TERMS: usize = 200;
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
    /// Curator's `LeaderLatch`.
    Latch,
    /// zlock's election.
    Election,
}

const LOCKS: &[Kind] = &[Kind::Curator, Kind::Kazoo, Kind::Zlock, Kind::ZlockHandoff];
const CANDIDATES: &[Kind] = &[Kind::Latch, Kind::Election];

impl Kind {
    /// The number of workers of one process that use the lock concurrently.
    fn workers(self) -> usize {
        match self {
            Kind::Curator | Kind::Latch => 2,
            // A kazoo lock belongs to a Python thread, and only one of these runs at a time.
            Kind::Kazoo => 1,
            Kind::Zlock | Kind::ZlockHandoff | Kind::Election => 4,
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
            Kind::Curator => Some((peer::Kind::Curator, "crowd")),
            Kind::Latch => Some((peer::Kind::Curator, "latches")),
            Kind::Kazoo => Some((peer::Kind::Kazoo, "crowd")),
            Kind::Zlock | Kind::ZlockHandoff | Kind::Election => None,
        };
        let runs = if let Some((theirs, command)) = theirs {
            let mut peer = Peer::start(theirs, &server, PATH, SESSION).await;
            peer.tell(&format!("{command} {name} {} {folder}", kind.workers())).await;
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
    let kinds = || [LOCKS, CANDIDATES].into_iter().flatten().copied();
    let kind = kinds().find(|kind| name.starts_with(&format!("{kind:?}-"))).unwrap();
    if kind == Kind::ZlockHandoff {
        mutex = mutex.with_handoff(HANDOFF);
    }
    let mut workers = JoinSet::new();
    for number in 0..kind.workers() {
        let (worker, journal) = (format!("{name}.{number}"), journal.clone());
        if kind == Kind::Election {
            let election = client.election(PATH).unwrap().with_value(worker.as_str()).unwrap();
            workers.spawn(work(election, worker, journal));
        } else {
            workers.spawn(work(mutex.clone(), worker, journal));
        }
    }
    while workers.join_next().await.transpose().unwrap().is_some() {}
    client.close().await.unwrap();
}

async fn work<L: Lock>(lock: L, worker: String, journal: Journal) {
    for round in 0_u32.. {
        if journal.is_stopped() {
            return;
        }
        journal.note(&format!("ask {worker}"));
        let guard = lock.acquire().await.unwrap();
        journal.hold(&worker).await;
        if round % 3 == 0 {
            drop(guard);
        } else {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
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
    limit_to_if(LIMIT, have_zookeeper() && have(missing.as_deref()), async {
        let server = ZooKeeper::start().await;
        mixed(&server, LOCKS, rounds(ROUNDS)).await;
    })
    .await;
}

/// An observer sees the terms of both, and each has a larger number than the one before.
#[tokio::test]
async fn a_mixed_fleet_of_candidates_some_of_which_are_killed() {
    limit_to_if(LIMIT, have_zookeeper() && have(peer::Kind::Curator.missing().as_deref()), async {
        let server = ZooKeeper::start().await;
        let client = connect(server.connect_string(), SESSION).await;
        let mut leaders = client.election(PATH).unwrap().observe();
        let observed = tokio::spawn(async move {
            let (mut last, mut terms, mut kinds) = (None, 0, BTreeMap::<String, usize>::new());
            // Until the client is closed.
            while let Ok(view) = leaders.changed().await {
                let Some(leader) = view.leader else { continue };
                assert!(Some(leader.term) >= last, "{leader:?} after {last:?}");
                if Some(leader.term) > last {
                    let who = String::from_utf8(leader.value).unwrap();
                    *kinds.entry(who.split('-').next().unwrap().to_owned()).or_default() += 1;
                    (last, terms) = (Some(leader.term), terms + 1);
                }
            }
            (terms, kinds)
        });
        mixed(&server, CANDIDATES, rounds(TERMS)).await;
        client.close().await.unwrap();
        let (terms, kinds) = observed.await.unwrap();
        report(format!("{terms} terms were observed, each larger than the one before: {kinds:?}"));
        assert!(kinds.contains_key("Latch") && kinds.contains_key("Election"), "{kinds:?}");
    })
    .await;
}

/// The number of rounds, unless the variable `ZLOCK_MIXED_ROUNDS` says another one.
fn rounds(rounds: usize) -> usize {
    std::env::var("ZLOCK_MIXED_ROUNDS").map_or(rounds, |rounds| rounds.parse().unwrap())
}

async fn mixed(server: &ZooKeeper, kinds: &[Kind], rounds: usize) {
    let folder = tempfile::tempdir().unwrap();
    let journal = &Journal::begin(folder.path());
    let mut fleet = Fleet { server, journal, members: Vec::new(), started: 0, killed: BTreeMap::new() };
    fleet.start(&kinds.repeat(PROCESSES)).await;
    fleet.everybody_has_a_turn().await;
    for &holder in kinds {
        fleet.kill(holder, true).await;
        // No worker makes progress until the killed holder's session ends.
        for &waiter in kinds.iter().filter(|kind| **kind != holder) {
            fleet.kill(waiter, false).await;
        }
        fleet.start(kinds).await;
        fleet.everybody_has_a_turn().await;
    }
    while journal.read().rounds().values().sum::<usize>() < rounds {
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
    assert_eq!(left["ephemerals_count"], 0.0);
    // That of the test's own observer.
    assert!(left["watch_count"] <= if kinds == LOCKS { 0.0 } else { 1.0 }, "{left:?}");
}
