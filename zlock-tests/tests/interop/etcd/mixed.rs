//! Go's `concurrency.Mutex` (which is `etcdctl lock`), the server's lock service and zlock on one path, zlock with and without
//! hand-off: no two workers hold the lock at the same time, all get turns, each kind after each other, and nothing is left,
//! although holders and waiters of each kind are killed.
//!
//! The evidence is a [`Journal`].
//!
//! The variable `ZLOCK_MIXED_PEERS` adds kinds of contenders: commands, separated by semicolons, each the path of a program and
//! its arguments, separated by spaces. The test appends the arguments `HOST:PORT PATH TTL FOLDER WORKER..`, the TTL in seconds.
//! Until the file `stop` exists in the folder, each worker acquires and releases the lock again and again, and writes the other
//! files of the folder as the docs of [`Journal`] say. Then the program removes its keys and ends with exit code 0.
//! `ZLOCK_MIXED_CANDIDATES` does the same for elections, where a worker campaigns and resigns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Client as EtcdClient, GetOptions, LockOptions, ResignOptions};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_recipes::{Client, Handoff, Lock, LockGuard, Release};
use zlock_testkit::etcd::observer;
use zlock_testkit::{
    Etcd, Events, Journal, Process, etcdctl, have_etcd, limit_to, limit_to_if, report, until,
};

const PATH: &str = "/mixed/lock";
/// Short, since a killed holder's lock is not free until its lease ends.
const TTL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(300);
/// The minimum number of holds.
const ROUNDS: usize = 1000;
/// The minimum number of terms.
const TERMS: usize = 200;
/// The minimum number of holds of each kind.
const OF_EACH_KIND: usize = 50;
/// The minimum number of holds of each kind directly after one of each other kind.
const OF_EACH_PAIR: usize = 5;
/// Processes of each kind.
const PROCESSES: usize = 2;
const HANDOFF: Handoff = Handoff::within(Duration::from_millis(20));

/// A kind of contender.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Zlock,
    Handoff,
    Service,
    Etcdctl,
    /// zlock's election.
    Election,
    /// The server's election service.
    ElectionService,
    /// A command of `ZLOCK_MIXED_PEERS` or `ZLOCK_MIXED_CANDIDATES`.
    Other(String),
}

impl Kind {
    fn all() -> Vec<Self> {
        let all = [Kind::Zlock, Kind::Handoff, Kind::Service, Kind::Etcdctl];
        [&all[..], &Kind::others("ZLOCK_MIXED_PEERS")].concat()
    }

    /// Kinds of candidates of an election.
    fn candidates() -> Vec<Self> {
        [&[Kind::Election, Kind::ElectionService][..], &Kind::others("ZLOCK_MIXED_CANDIDATES")].concat()
    }

    fn others(variable: &str) -> Vec<Self> {
        let commands = std::env::var(variable).unwrap_or_default();
        let commands = commands.split(';').map(str::trim).filter(|command| !command.is_empty());
        commands.map(|command| Kind::Other(command.to_owned())).collect()
    }

    fn name(&self) -> String {
        match self {
            Kind::Other(command) => {
                let program = command.split(' ').next().map(Path::new).unwrap();
                program.file_name().unwrap().to_str().unwrap().to_owned()
            }
            _ => format!("{self:?}"),
        }
    }

    /// Returns the number of workers of one process that use the lock concurrently.
    fn workers(&self) -> usize {
        match self {
            Kind::Zlock | Kind::Handoff | Kind::Election => 4,
            Kind::Service | Kind::ElectionService | Kind::Other(_) => 2,
            Kind::Etcdctl => 1,
        }
    }

    fn start(&self, hosts: &str, journal: &Journal, workers: &[String]) -> Process {
        let (ttl, folder) = (TTL.as_secs(), journal.folder().to_str().unwrap());
        let args = format!("{hosts} {PATH} {ttl} {folder} {}", workers.join(" "));
        match self {
            Kind::Other(command) => {
                let command = format!("{command} {args}");
                let command: Vec<_> = command.split(' ').collect();
                Process::spawn(command[0], &command[1..], &[])
            }
            Kind::Etcdctl => {
                let etcdctl = etcdctl();
                let (etcdctl, worker) = (etcdctl.display(), &workers[0]);
                // Quoted for the script, which is one argument. Opened for reading, too, a file is not truncated.
                let hold = format!(
                    "read -r n <{folder}/count; echo in {worker} $n >>{folder}/journal; sleep 0.001; \
                     n=$((n + 1)); printf $n 1<>{folder}/count; echo out {worker} $n >>{folder}/journal"
                );
                let script = format!(
                    "echo ask {worker} >>{folder}/journal; \
                     exec {etcdctl} --endpoints={hosts} --dial-timeout=30s lock --ttl={ttl} {PATH} -- sh -c '{hold}'"
                );
                Process::spawn("sh", &["-c", &script], &[("ETCDCTL_API", "3")])
            }
            _ => Process::spawn_test(
                concat!(module_path!(), "::child_of_the_fleet"),
                &[("ZLOCK_CHILD", &args)],
            ),
        }
    }
}

/// In a separate process.
#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn child_of_the_fleet() {
    let args = std::env::var("ZLOCK_CHILD").unwrap();
    let args: Vec<_> = args.split(' ').map(str::to_owned).collect();
    let [hosts, path, _, folder, workers @ ..] = &args[..] else { panic!("{args:?}") };
    let (journal, mut tasks) = (Journal::open(folder), JoinSet::new());
    let is_election = workers[0].starts_with("ElectionService-");
    if is_election || workers[0].starts_with("Service-") {
        let client = observer(hosts).await;
        for worker in workers {
            let (client, path, worker) = (client.clone(), path.clone(), worker.clone());
            tasks.spawn(work_with_the_service(client, path, worker, journal.clone(), is_election));
        }
        tasks.join_all().await;
        return;
    }
    let backend = EtcdBackend::connect(EtcdOptions::new([hosts]).with_ttl(TTL)).await.unwrap();
    let client = Client::new(backend);
    let mut mutex = client.mutex(path).unwrap();
    if workers[0].starts_with("Handoff-") {
        mutex = mutex.with_handoff(HANDOFF);
    }
    for worker in workers {
        if worker.starts_with("Election-") {
            let election = client.election(path).unwrap().with_value(worker.as_str()).unwrap();
            tasks.spawn(work(election, worker.clone(), journal.clone()));
        } else {
            tasks.spawn(work(mutex.clone(), worker.clone(), journal.clone()));
        }
    }
    tasks.join_all().await;
    client.close().await.unwrap();
}

async fn work<L: Lock>(lock: L, worker: String, journal: Journal) {
    for round in 0.. {
        if journal.is_stopped() {
            return;
        }
        step_back(round).await;
        journal.note(&format!("ask {worker}"));
        let guard = lock.acquire().await.unwrap();
        journal.hold(&worker).await;
        if round % 3 == 0 {
            drop(guard);
        } else {
            // On a busy machine, a session this short may be suspended. The background removes the node then.
            let release = guard.release().await.unwrap();
            assert!(matches!(release, Release::Released | Release::Pending), "{release:?}");
        }
    }
}

/// Lets others join the queue first, for a different time in each round. Otherwise the order of workers would never change.
async fn step_back(round: u64) {
    sleep(Duration::from_millis(round * 37 % 50)).await;
}

/// On the server, a lease is the contender. So each worker has one.
async fn work_with_the_service(
    mut client: EtcdClient,
    path: String,
    worker: String,
    journal: Journal,
    is_election: bool,
) {
    let lease = client.lease_grant(TTL.as_secs().cast_signed(), None).await.unwrap().id();
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.unwrap();
    let keeping = tokio::spawn(async move {
        loop {
            keeper.keep_alive().await.unwrap();
            assert!(answers.message().await.unwrap().unwrap().ttl() > 0);
            sleep(TTL / 3).await;
        }
    });
    for round in 0.. {
        if journal.is_stopped() {
            break;
        }
        step_back(round).await;
        journal.note(&format!("ask {worker}"));
        if is_election {
            let won = client.campaign(path.as_str(), worker.as_str(), lease).await.unwrap();
            journal.hold(&worker).await;
            let leader = won.leader().unwrap().clone();
            client.resign(Some(ResignOptions::new().with_leader(leader))).await.unwrap();
            continue;
        }
        let options = LockOptions::new().with_lease(lease);
        let locked = client.lock(path.as_str(), Some(options)).await.unwrap();
        journal.hold(&worker).await;
        client.unlock(locked.key()).await.unwrap();
    }
    keeping.abort();
    client.lease_revoke(lease).await.unwrap();
}

/// A process that acquires the lock again and again until the journal is stopped. `etcdctl lock` acquires it only once, so its
/// member is one process after the other.
struct Member {
    kind: Kind,
    name: String,
    /// `None` between two processes.
    process: Arc<Mutex<Option<Process>>>,
    running: JoinHandle<()>,
}

impl Member {
    fn start(kind: &Kind, number: usize, server: &Etcd, journal: &Journal) -> Self {
        let (kind, name) = (kind.clone(), format!("{}-{number}", kind.name()));
        let process: Arc<Mutex<Option<Process>>> = Arc::default();
        let running = {
            let (kind, hosts, journal) = (kind.clone(), server.connect_string(), journal.clone());
            let (workers, process) = (workers(&name, &kind), Arc::clone(&process));
            tokio::spawn(async move {
                while !journal.is_stopped() {
                    let started = kind.start(&hosts, &journal, &workers);
                    *process.lock().unwrap() = Some(started);
                    while process.lock().unwrap().as_ref().is_some_and(Process::is_running) {
                        sleep(Duration::from_millis(1)).await;
                    }
                    // Killed otherwise.
                    let Some(ended) = process.lock().unwrap().take() else { return };
                    assert_eq!(ended.wait().await, 0, "{workers:?}");
                }
            })
        };
        Member { kind, name, process, running }
    }

    fn workers(&self) -> Vec<String> {
        workers(&self.name, &self.kind)
    }

    /// Kills the process if it is in the right state. Returns it, with the numbers of its workers that held the lock and that
    /// waited for it.
    fn kill(&self, journal: &Journal, holds: bool) -> Option<(Process, usize, usize)> {
        let mut slot = self.process.lock().unwrap();
        let process = slot.as_ref()?;
        // So that nothing happens between reading the journal and killing the process.
        process.pause();
        let (events, workers) = (journal.read(), self.workers());
        let count = |what| workers.iter().filter(|worker| events.last(worker) == Some(what)).count();
        let (inside, asked) = (count("in"), count("ask"));
        if if holds { inside == 1 } else { inside == 0 && asked > 0 } {
            process.kill();
            return Some((slot.take()?, inside, asked));
        }
        process.resume();
        None
    }
}

fn workers(name: &str, kind: &Kind) -> Vec<String> {
    (0..kind.workers()).map(|n| format!("{name}.{n}")).collect()
}

struct Fleet<'a> {
    server: &'a Etcd,
    journal: &'a Journal,
    members: Vec<Member>,
    started: usize,
    /// By kind: the numbers of workers that were killed while they held, and while they waited.
    killed: BTreeMap<String, (usize, usize)>,
}

impl Fleet<'_> {
    fn start<'k>(&mut self, kinds: impl IntoIterator<Item = &'k Kind>) {
        for kind in kinds {
            self.members.push(Member::start(kind, self.started, self.server, self.journal));
            self.started += 1;
        }
    }

    /// Kills a process of this kind in the middle of its work: while one of its workers holds the lock, or while some wait for
    /// it and none holds it.
    async fn kill(&mut self, kind: &Kind, holds: bool) {
        for turn in 0.. {
            let of_the_kind: Vec<_> =
                (0..self.members.len()).filter(|i| self.members[*i].kind == *kind).collect();
            let at = of_the_kind[turn % of_the_kind.len()];
            if let Some((process, inside, asked)) = self.members[at].kill(self.journal, holds) {
                // Ends the command of `etcdctl`, too.
                assert_eq!(process.wait().await, 128 + 9);
                let member = self.members.swap_remove(at);
                self.journal.note(&format!("killed {}", member.name));
                let killed = self.killed.entry(kind.name()).or_default();
                *killed = (killed.0 + inside, killed.1 + asked);
                return;
            }
            self.sleep(Duration::from_micros(500)).await;
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
            self.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Fails if a process has ended by itself.
    async fn sleep(&self, time: Duration) {
        sleep(time).await;
        let ended = self.members.iter().find(|member| member.running.is_finished());
        assert!(ended.is_none(), "{} has ended", ended.map_or("", |member| &member.name));
    }
}

#[tokio::test]
async fn a_mixed_fleet_some_of_which_are_killed() {
    if !have_etcd() {
        return;
    }
    limit_to(LIMIT, async { mixed(&Etcd::start().await, Kind::all(), rounds(ROUNDS)).await }).await;
}

/// An observer sees the terms of both, and each has a larger number than the one before.
#[tokio::test]
async fn a_mixed_fleet_of_candidates_some_of_which_are_killed() {
    limit_to_if(LIMIT, have_etcd(), async {
        let server = Etcd::start().await;
        let backend = EtcdBackend::connect(EtcdOptions::new([server.connect_string()])).await.unwrap();
        let client = Client::new(backend);
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
        let close = async {
            client.close().await.unwrap();
            let (terms, kinds) = observed.await.unwrap();
            report(format!("{terms} terms were observed, each larger than the one before: {kinds:?}"));
            assert!(Kind::candidates().iter().all(|kind| kinds.contains_key(&kind.name())), "{kinds:?}");
        };
        mixed_until(&server, Kind::candidates(), rounds(TERMS), close).await;
    })
    .await;
}

/// The number of rounds, unless the variable `ZLOCK_MIXED_ROUNDS` says another one.
fn rounds(rounds: usize) -> usize {
    std::env::var("ZLOCK_MIXED_ROUNDS").map_or(rounds, |rounds| rounds.parse().unwrap())
}

async fn mixed(server: &Etcd, kinds: Vec<Kind>, rounds: usize) {
    mixed_until(server, kinds, rounds, async {}).await;
}

/// `end` runs before the look at what is left.
async fn mixed_until(server: &Etcd, kinds: Vec<Kind>, rounds: usize, end: impl Future<Output = ()>) {
    let folder = tempfile::tempdir().unwrap();
    let journal = &Journal::begin(folder.path());
    let mut fleet = Fleet { server, journal, members: Vec::new(), started: 0, killed: BTreeMap::new() };
    (0..PROCESSES).for_each(|_| fleet.start(&kinds));
    fleet.everybody_has_a_turn().await;
    for holder in &kinds {
        fleet.kill(holder, true).await;
        // No worker makes progress until the killed holder's lease ends.
        for waiter in kinds.iter().filter(|kind| *kind != holder) {
            fleet.kill(waiter, false).await;
        }
        fleet.start(&kinds);
        fleet.everybody_has_a_turn().await;
    }
    let enough = |events: &Events| {
        let (of_each, pairs) = (events.rounds(), events.handovers());
        of_each.values().sum::<usize>() >= rounds
            && of_each.values().all(|count| *count >= OF_EACH_KIND)
            && pairs.len() == kinds.len() * (kinds.len() - 1)
            && pairs.values().all(|count| *count >= OF_EACH_PAIR)
    };
    while !enough(&journal.read()) {
        fleet.sleep(Duration::from_millis(50)).await;
    }
    journal.stop();
    for member in fleet.members {
        member.running.await.unwrap();
    }

    let events = journal.read();
    let ((overlaps, lost), rounds) = (events.wrong(), events.rounds());
    report(format!(
        "{} rounds: {rounds:?}; at least {} by each kind directly after each other; workers killed (while they held, while they waited): {:?}; overlaps: {overlaps}, \
             counts lost: {lost}",
        rounds.values().sum::<usize>(),
        events.handovers().values().min().unwrap_or(&0),
        fleet.killed
    ));
    assert_eq!((overlaps, lost), (0, 0));
    end.await;
    // All nodes of killed processes were ahead of nodes whose turn has come.
    let observer = observer(&server.connect_string()).await;
    let everything = GetOptions::new().with_all_keys().with_keys_only();
    let left = observer.kv_client().get("", Some(everything)).await.unwrap();
    let left: Vec<_> = left.kvs().iter().map(|kv| kv.key_str().unwrap()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    // `etcdctl` does not revoke its leases.
    until("no watch, no lease", async || {
        let leases = observer.lease_client().leases().await.unwrap();
        server.metrics().await.watches() == 0 && leases.leases().is_empty()
    })
    .await;
}
