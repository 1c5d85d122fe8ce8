//! The state that all tracks of a run share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use zlock_testkit::Process;

use super::clock::{nanos, now};
use super::cluster::Cluster;
use super::plan::{ClusterFault, Planned, Role};
use super::sides::{Side, Sides};
use super::told::{crowd_file, storm_file};
use crate::history::{Disturbance, Ending, Ns};

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    /// `None` if clients cannot be cut off from a part of the cluster.
    pub(crate) sides: Option<Sides>,
    /// The current process of each client.
    pub(crate) processes: Vec<Mutex<Option<Process>>>,
    pub(crate) session: Duration,
    /// The folder of the histories, the storage's socket and the stop file.
    pub(crate) folder: PathBuf,
    pub(crate) began: Instant,
    pub(crate) log: Mutex<Log>,
}

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) disturbances: Vec<Disturbance>,
    pub(crate) endings: Vec<Ending>,
    pub(crate) violations: Vec<String>,
    /// Disagreements between the servers after they were healed.
    pub(crate) disagreements: Vec<String>,
    pub(crate) faults: usize,
    /// How many faults of each kind the cluster had.
    pub(crate) of_cluster: BTreeMap<&'static str, usize>,
}

/// The machine has stalled if a sleeping task wakes this late.
const STALL: Duration = Duration::from_millis(150);

/// The time after which a resumed leader has noticed that it no longer leads, and its earlier messages have taken effect.
const WAKING: Duration = Duration::from_secs(2);

impl World {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the servers for a client.
    pub(crate) fn servers(&self, client: usize) -> Vec<SocketAddr> {
        match &self.sides {
            Some(sides) => sides.addrs(Side::of(client)),
            None => self.cluster.addrs(),
        }
    }

    /// Returns the process of a client. It is locked, because a stop does not end before all threads have stopped.
    pub(crate) fn process(&self, client: usize) -> MutexGuard<'_, Option<Process>> {
        self.processes[client].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn say(&self, what: impl std::fmt::Display) {
        println!("  {:8.3}s {what}", self.began.elapsed().as_secs_f64());
    }

    pub(crate) fn violation(&self, what: String) {
        self.say(format!("VIOLATION {what}"));
        self.log().violations.push(what);
    }

    pub(crate) fn disagreement(&self, what: String) {
        self.say(format!("THE SERVERS DISAGREE {what}"));
        self.log().disagreements.push(what);
    }

    pub(crate) fn ended(&self, ending: Ending) {
        self.log().endings.push(ending);
    }

    /// Records that one client or all were disturbed from then until now, and need some time to recover.
    pub(crate) fn disturbed(&self, from: Ns, and: Duration, client: Option<String>) {
        let until = now() + nanos(and);
        let mut log = self.log();
        log.faults += 1;
        log.disturbances.push(Disturbance { from, until, client, misleads: false, server: None });
    }

    /// Records that a server has been silent since then, for one client or all.
    pub(crate) fn silent(&self, from: Ns, client: Option<String>, server: usize) {
        let (until, server) = (now(), Some(server));
        self.log().disturbances.push(Disturbance { from, until, client, misleads: false, server });
    }

    /// Records that the leader has been moved since then. A keep-alive during that takes longer.
    pub(crate) fn leader_moved(&self, since: Ns) {
        self.say(format!("cluster: another leader, {:?} in all", Duration::from_nanos(now() - since)));
        self.log().disturbances.push(Disturbance {
            from: since,
            until: now(),
            client: None,
            misleads: false,
            server: None,
        });
    }

    /// Carries out the plan for the cluster.
    pub(crate) async fn disturb_cluster(&self, track: Vec<Planned<ClusterFault>>) {
        for Planned { at, fault } in track {
            sleep_until(self.began + at).await;
            self.say(format!("cluster: {fault}"));
            let storm = storm_file(&self.folder);
            std::fs::write(&storm, "").expect("a file");
            self.suffer(fault).await;
            *self.log().of_cluster.entry(fault.kind()).or_default() += 1;
            // Until the clients have noticed the effects.
            sleep(self.session / 10).await;
            std::fs::remove_file(&storm).expect("a file");
            self.say("cluster: whole again");
        }
    }

    async fn suffer(&self, fault: ClusterFault) {
        let cluster = &self.cluster;
        if cluster.has_one_primary() {
            return self.suffer_with_one_primary(fault).await;
        }
        let from = now();
        match fault {
            ClusterFault::Kill(role, away) => {
                let server = cluster.find(role).await;
                cluster.kill(server);
                self.recovered(role, from).await;
                sleep(away).await;
                cluster.restart(server).await;
            }
            ClusterFault::Pause(role, time) => {
                let server = cluster.find(role).await;
                cluster.pause(server);
                self.stands_still((role, server), from, time, || cluster.resume(server)).await;
            }
            ClusterFault::HangDisk(role, time) => {
                let server = cluster.find(role).await;
                let hung = cluster.hang_disk(server);
                self.stands_still((role, server), from, time, || drop(hung)).await;
            }
            ClusterFault::CutOff(role, time) => {
                let server = cluster.find(role).await;
                cluster.set_apart(server, true);
                sleep(time).await;
                cluster.set_apart(server, false);
                // The clients of that server had no contact with other servers all the time.
                self.recovered(role, from).await;
            }
            ClusterFault::RestartAll => {
                cluster.restart_all().await;
                self.recovered(Role::Leader, from).await;
            }
            ClusterFault::RestartEach => {
                for server in 0..cluster.addrs().len() {
                    cluster.kill(server);
                    cluster.restart(server).await;
                    cluster.leader().await;
                }
                self.recovered(Role::Leader, from).await;
            }
            ClusterFault::Replace(replaced, time) => {
                self.replace_leader(replaced, time).await;
                self.recovered(Role::Leader, from).await;
                self.log().disturbances.iter_mut().filter(|d| d.from == from).for_each(|d| d.misleads = true);
            }
            ClusterFault::StallConnecting(time) => {
                self.stall_connecting(time).await;
                self.recovered(Role::Follower, from).await;
            }
            _ => unreachable!("{fault}"),
        }
        cluster.leader().await;
    }

    /// Nobody replaces a primary that is away, unless a replica is promoted.
    async fn suffer_with_one_primary(&self, fault: ClusterFault) {
        let (cluster, from) = (&self.cluster, now());
        let primary = cluster.leader().await;
        match fault {
            ClusterFault::Kill(_, away) => {
                cluster.kill(primary);
                sleep(away).await;
                cluster.restart(primary).await;
            }
            ClusterFault::Pause(_, time) => {
                cluster.pause(primary);
                sleep(time).await;
                self.silent(from, None, primary);
                cluster.resume(primary);
            }
            ClusterFault::HangDisk(_, time) => {
                let hung = cluster.hang_disk(primary);
                sleep(time).await;
                drop(hung);
            }
            ClusterFault::ShutDown => {
                cluster.shut_down(primary).await;
                cluster.restart(primary).await;
            }
            ClusterFault::RestartAll => cluster.restart_all().await,
            // This and a step of the clock excuse nothing.
            ClusterFault::Crowd => {
                std::fs::write(crowd_file(&self.folder), "").expect("a file");
                sleep(self.session).await;
                std::fs::remove_file(crowd_file(&self.folder)).expect("a file");
            }
            _ => self.suffer_with_a_pair(fault).await,
        }
        match fault {
            ClusterFault::StepClock(_) | ClusterFault::Crowd => self.log().faults += 1,
            ClusterFault::Kill(..) | ClusterFault::RestartAll | ClusterFault::ShutDown
                if cluster.is_lossy() =>
            {
                self.lost_commits(from)
            }
            ClusterFault::Promote(..) | ClusterFault::ComeBack(_) | ClusterFault::Restore(_) => {
                self.lost_commits(from)
            }
            _ => self.disturbed(from, self.session * 2 / 5, None),
        }
    }

    /// The faults that only a primary with a replica has.
    async fn suffer_with_a_pair(&self, fault: ClusterFault) {
        let Cluster::Postgres(pair) = &self.cluster else { unreachable!("{fault}") };
        match fault {
            ClusterFault::HangCommits(time) => pair.hang_commits(time).await,
            ClusterFault::CrashProcess => pair.crash_process().await,
            ClusterFault::StepClock(seconds) => pair.server(pair.primary()).step_clock(seconds),
            ClusterFault::Promote(lag, clock) => drop(pair.promote(lag, clock).await),
            ClusterFault::ComeBack(lag) => {
                let old = pair.promote(lag, 0).await;
                // Half of that is quiet time.
                sleep(self.session * 3).await;
                pair.come_back(old).await;
            }
            ClusterFault::Restore(lost) => pair.restore(lost).await,
            _ => unreachable!("{fault}"),
        }
    }

    /// Records that the servers may have lost commits since then: all sessions end, however long they would have lived, and nothing is
    /// locked for the longest session timeout. The old primary has answered heartbeats that the new one does not know.
    fn lost_commits(&self, from: Ns) {
        let from = from.saturating_sub(nanos(self.session));
        self.disturbed(from, self.session * 12 / 5, None);
        self.log().disturbances.iter_mut().filter(|d| d.from == from).for_each(|d| d.misleads = true);
    }

    /// Records that a server was stopped for this time.
    async fn stands_still(
        &self,
        (role, server): (Role, usize),
        from: Ns,
        time: Duration,
        go_on: impl FnOnce(),
    ) {
        if role == Role::Follower {
            self.recovered(role, from).await;
        }
        sleep(time).await;
        self.silent(from, None, server);
        if role == Role::Follower {
            go_on();
            // A resumed server may disconnect its clients.
            return self.recovered(role, now()).await;
        }
        let sessions = self.cluster.endangered(server).await;
        let woken = now();
        go_on();
        let ended = async {
            if let Some(sessions) = sessions {
                self.watch_sessions(server, sessions, woken).await;
            }
        };
        tokio::join!(ended, self.recovered(role, from));
    }

    /// Records the sessions that a resumed leader ends.
    async fn watch_sessions(&self, leader: usize, mut sessions: BTreeSet<u64>, asked: Ns) {
        let until = Instant::now() + WAKING;
        while Instant::now() < until {
            sleep(Duration::from_millis(20)).await;
            let Some(left) = self.cluster.endangered(leader).await else { continue };
            let done = now();
            for &session in sessions.difference(&left) {
                // The client notices by its deadline.
                self.ended(Ending { session, asked, done, until: done + nanos(self.session) });
            }
            sessions.retain(|session| left.contains(session));
        }
    }

    /// Records a disturbance until now, when the cluster has recovered, plus the time that clients need to switch servers.
    async fn recovered(&self, role: Role, from: Ns) {
        if role == Role::Leader {
            self.cluster.leader().await;
        }
        self.disturbed(from, self.session * 2 / 5, None);
    }

    /// Records stalls of the machine, which excuse delays.
    pub(crate) async fn watch_for_stalls(&self) {
        loop {
            let before = now();
            sleep(Duration::from_millis(20)).await;
            if Duration::from_nanos(now() - before) > STALL {
                self.say(format!("the machine was paused for {:?}", Duration::from_nanos(now() - before)));
                let stall =
                    Disturbance { from: before, until: now(), client: None, misleads: false, server: None };
                self.log().disturbances.push(stall);
            }
        }
    }
}
