//! The faults of clients and servers and their times, derived from a seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use zlock_testkit::{Cut, Flow};

/// A fault of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClientFault {
    /// Killed (SIGKILL); another process takes its place after this time.
    Kill(Duration),
    /// Stopped (SIGSTOP) for this time.
    Pause(Duration),
    /// Its links break for this time: all of them, or only the one to this server.
    Links(Option<usize>, Break, Duration),
    /// Its connections end, and new ones are accepted.
    Cut(Cut),
    /// An operator ends its session at the server.
    EndSession,
}

/// How a link breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Break {
    ToServer(Flow),
    ToClient(Flow),
    Both(Flow),
    /// New connections are refused, and existing ones are reset.
    Refuse,
    Freeze,
}

/// A fault of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClusterFault {
    /// Killed (SIGKILL) and started again after this time.
    Kill(Role, Duration),
    /// Stopped (SIGSTOP) for this time.
    Pause(Role, Duration),
    /// Its disk hangs for this time; all else continues. An etcd follower then responds from an old state.
    HangDisk(Role, Duration),
    /// Cut off from the others for this time, but not from its clients. It responds from an old state.
    CutOff(Role, Duration),
    /// Ended as by an operator, and started again.
    ShutDown,
    /// All killed, and started again.
    RestartAll,
    /// Killed and started again one after the other.
    RestartEach,
    /// The leader and half of the clients are cut off from the others. These are restarted, so they elect another leader at
    /// once, and the cut lasts this much longer. The replaced leader answers until it notices (`syncLimit`).
    Replace(Replaced, Duration),
    /// Half of the clients lose their connections, reach only one follower, and are stopped for this time while they connect to
    /// it. Right after they have connected, the follower is killed.
    StallConnecting(Duration),
    /// The primary confirms what its replica never gets, for this time. Then it is killed for good, and the replica promoted. In the
    /// time without grants, the clock of the new primary is set to this many seconds after the real one.
    Promote(Duration, i64),
    /// The same, but then the new primary is killed for good, and the old one started again, on its old timeline.
    ComeBack(Duration),
    /// The primary confirms what it loses after this time, when it is killed and started from a copy of its data.
    Restore(Duration),
    /// One process of the primary is killed, so that all others end.
    CrashProcess,
    /// Each client acquires one lock with many tasks.
    Crowd,
    /// Commits hang for this time.
    HangCommits(Duration),
    /// The primary's clock is set to this many seconds after the real one, or before if negative.
    StepClock(i64),
}

/// What a leader does while it is replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Replaced {
    Runs,
    /// It is stopped, resumed while the others elect, and stopped again.
    Stops,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    Leader,
    Follower,
}

/// A planned fault, at a time after the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Planned<F> {
    pub(crate) at: Duration,
    pub(crate) fault: F,
}

/// The plan of a run. It has one track for each client except the first, which gets no faults of its own, and one for the
/// cluster. The faults on a track happen one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) clients: Vec<Vec<Planned<ClientFault>>>,
    pub(crate) cluster: Vec<Planned<ClusterFault>>,
}

/// The parameters of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) clients: usize,
    pub(crate) servers: usize,
    /// `true` if servers can be cut off from each other, and half of the clients from some servers.
    pub(crate) can_cut_off: bool,
    /// `true` for a primary and a replica that can be promoted.
    pub(crate) is_pair: bool,
    pub(crate) session: Duration,
    pub(crate) time: Duration,
}

impl Plan {
    pub(crate) fn new(seed: u64, scale: Scale) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut clients = vec![Vec::new()];
        for _ in 1..scale.clients {
            clients.push(track(&mut rng, scale.time, 500..4000, |rng| client_fault(rng, scale)));
        }
        // No promise covers both a wrong clock and an old primary that is started again.
        let steps = if seed % 2 == 1 { &STEPS[..] } else { &[] };
        let cluster = track(&mut rng, scale.time, 2000..8000, |rng| match scale.servers {
            1 => lone_fault(rng, scale),
            _ if scale.is_pair => pair_fault(rng, scale, steps, is_lossy(seed)),
            _ => cluster_fault(rng, scale),
        });
        Plan { clients, cluster }
    }
}

/// Returns faults with pauses between them, until the time is over.
fn track<F: Copy>(
    rng: &mut Rng,
    time: Duration,
    gap: std::ops::Range<u64>,
    fault: impl Fn(&mut Rng) -> (F, Duration),
) -> Vec<Planned<F>> {
    let mut track = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += Duration::from_millis(rng.u64(gap.clone()));
        let (fault, takes) = fault(rng);
        if at + takes > time {
            return track;
        }
        track.push(Planned { at, fault });
        at += takes;
    }
}

/// The critical durations, as multiples of the session timeout: clearly shorter, about as long, and much longer.
const PARTS: [f64; 4] = [0.5, 0.9, 1.1, 3.0];

/// How long a replaced leader remains cut off after the election, as multiples of the session timeout. The next leader ends a
/// session after one timeout and a tick. The cut lasts up to twice `syncLimit`.
const REPLACED: [f64; 3] = [1.5, 2.0, 3.0];

/// Where the clock of a database server is set, in seconds from the real time: far in both directions, by a few sessions, and right.
const STEPS: [i64; 5] = [3600, -3600, 10, -10, 0];

/// The stop of a client that is connecting, as a multiple of the session timeout. Its session has not ended after that.
const STALL: f64 = 0.45;

fn part(rng: &mut Rng, session: Duration) -> Duration {
    session.mul_f64(PARTS[rng.usize(..PARTS.len())])
}

fn client_fault(rng: &mut Rng, scale: Scale) -> (ClientFault, Duration) {
    let session = scale.session;
    let time = part(rng, session);
    match rng.u32(..10) {
        0 => (ClientFault::Kill(time.min(session)), time.min(session)),
        1 | 2 => (ClientFault::Pause(time), time),
        3 => (ClientFault::Cut(Cut::Fin), Duration::ZERO),
        4 => (ClientFault::Cut(Cut::Reset), Duration::ZERO),
        5 => (ClientFault::EndSession, Duration::ZERO),
        _ => {
            let one = (rng.u32(..3) == 0).then(|| rng.usize(..scale.servers));
            (ClientFault::Links(one, how(rng, session), time), time)
        }
    }
}

fn how(rng: &mut Rng, session: Duration) -> Break {
    // A delay that is no outage: the client library does not treat it as silence.
    let flow = match rng.u32(..5) {
        0 | 1 => Flow::Hold,
        2 | 3 => Flow::Swallow,
        _ => Flow::Delay(session / 40),
    };
    match rng.u32(..8) {
        0 | 1 => Break::ToServer(flow),
        2 | 3 => Break::ToClient(flow),
        4 | 5 => Break::Both(flow),
        6 => Break::Refuse,
        _ => Break::Freeze,
    }
}

fn cluster_fault(rng: &mut Rng, scale: Scale) -> (ClusterFault, Duration) {
    let session = scale.session;
    let role = if rng.bool() { Role::Leader } else { Role::Follower };
    let time = part(rng, session);
    // Includes the time that the cluster needs to recover.
    let again = Duration::from_secs(2);
    match rng.u32(..if scale.can_cut_off { 16 } else { 11 }) {
        0..=2 => (ClusterFault::Kill(role, time.min(session)), time.min(session) + again),
        3..=5 => (ClusterFault::Pause(role, time), time + again),
        6 => (ClusterFault::HangDisk(role, time), time + again),
        7 => (ClusterFault::RestartAll, 2 * again),
        8 | 9 if scale.can_cut_off => (ClusterFault::CutOff(role, time), time + again),
        8 | 9 => (ClusterFault::HangDisk(role, time), time + again),
        10 => (ClusterFault::RestartEach, 3 * again),
        kind @ 11..=13 => {
            let replaced = if kind == 13 { Replaced::Stops } else { Replaced::Runs };
            let time = session.mul_f64(REPLACED[rng.usize(..REPLACED.len())]);
            (ClusterFault::Replace(replaced, time), time + 2 * again)
        }
        _ => (ClusterFault::StallConnecting(session.mul_f64(STALL)), 2 * session + again),
    }
}

/// Returns `true` if the servers of this run lose commits.
pub(crate) fn is_lossy(seed: u64) -> bool {
    !seed.is_multiple_of(3)
}

fn pair_fault(rng: &mut Rng, scale: Scale, steps: &[i64], is_lossy: bool) -> (ClusterFault, Duration) {
    let session = scale.session;
    let (role, time, again) = (Role::Leader, part(rng, session), Duration::from_secs(2));
    let (short, step) = (time.min(session), rng.choice(steps).copied());
    match rng.u32(..17) {
        0 | 1 => (ClusterFault::Kill(role, short), short + again),
        2 | 3 => (ClusterFault::Pause(role, time), time + again),
        4 => (ClusterFault::RestartAll, 2 * again),
        5 | 6 => (ClusterFault::HangCommits(time), time + again),
        7..=11 if !is_lossy => (ClusterFault::CrashProcess, again),
        7..=9 => (ClusterFault::Promote(short, step.unwrap_or(0)), short + session + 3 * again),
        10 | 11 => (ClusterFault::Restore(time), time + session + 3 * again),
        12 => (ClusterFault::CrashProcess, again),
        13 => (ClusterFault::Crowd, session + again),
        _ => match step {
            Some(step) => (ClusterFault::StepClock(step), session),
            None if is_lossy => (ClusterFault::ComeBack(short), short + 4 * session + 3 * again),
            None => (ClusterFault::CrashProcess, again),
        },
    }
}

fn lone_fault(rng: &mut Rng, scale: Scale) -> (ClusterFault, Duration) {
    let session = scale.session;
    let (role, time, again) = (Role::Leader, part(rng, session), Duration::from_secs(2));
    let short = time.min(session);
    match rng.u32(..11) {
        0..=2 => (ClusterFault::Kill(role, short), short + again),
        3 | 4 => (ClusterFault::Pause(role, time), time + again),
        5 => (ClusterFault::RestartAll, 2 * again),
        6 | 7 => (ClusterFault::HangDisk(role, time), time + again),
        8 | 9 => (ClusterFault::ShutDown, 2 * again),
        _ => (ClusterFault::Crowd, session + again),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for (client, track) in self.clients.iter().enumerate() {
            lines.extend(track.iter().map(|p| (p.at, format!("client {client}: {}", p.fault))));
        }
        lines.extend(self.cluster.iter().map(|p| (p.at, format!("cluster: {}", p.fault))));
        lines.sort();
        for (at, line) in lines {
            writeln!(f, "  +{:7.3}s {line}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

impl fmt::Display for ClientFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientFault::Kill(away) => write!(f, "killed, another comes after {away:?}"),
            ClientFault::Pause(time) => write!(f, "stopped for {time:?}"),
            ClientFault::Links(Some(link), how, time) => write!(f, "link {link}: {how:?} for {time:?}"),
            ClientFault::Links(None, how, time) => write!(f, "all links: {how:?} for {time:?}"),
            ClientFault::Cut(cut) => write!(f, "connections end by {cut:?}"),
            ClientFault::EndSession => f.write_str("its session is ended by hand"),
        }
    }
}

impl ClusterFault {
    /// Returns what happened, for the summary.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            ClusterFault::Kill(..) => "servers killed",
            ClusterFault::Pause(..) => "servers stopped",
            ClusterFault::HangDisk(..) => "disks hung",
            ClusterFault::CutOff(..) => "servers cut off",
            ClusterFault::ShutDown => "clean restarts",
            ClusterFault::RestartAll => "restarts of all at once",
            ClusterFault::RestartEach => "restarts of one after the other",
            ClusterFault::Replace(Replaced::Runs, _) => "leaders replaced behind a cut",
            ClusterFault::Replace(Replaced::Stops, _) => "leaders replaced behind a cut and stopped twice",
            ClusterFault::StallConnecting(_) => "stalls of connecting clients",
            ClusterFault::Promote(..) => "promotions that lost commits",
            ClusterFault::ComeBack(_) => "old primaries that came back",
            ClusterFault::Restore(_) => "restored copies",
            ClusterFault::CrashProcess => "crashes of one process",
            ClusterFault::Crowd => "crowds",
            ClusterFault::HangCommits(_) => "times of hanging commits",
            ClusterFault::StepClock(_) => "steps of the clock",
        }
    }
}

impl fmt::Display for ClusterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterFault::Kill(role, away) => write!(f, "{role:?} killed, back after {away:?}"),
            ClusterFault::Pause(role, time) => write!(f, "{role:?} stopped for {time:?}"),
            ClusterFault::HangDisk(role, time) => write!(f, "{role:?}'s disk hangs for {time:?}"),
            ClusterFault::CutOff(role, time) => {
                write!(f, "{role:?} cut off from the others for {time:?}, but not from clients")
            }
            ClusterFault::ShutDown => f.write_str("ended by an operator and started again"),
            ClusterFault::RestartAll => f.write_str("all killed at once and started again"),
            ClusterFault::Promote(lag, clock) => write!(
                f,
                "{lag:?} of commits are lost: the primary is killed, and its replica promoted; its clock is set to {clock:+} s"
            ),
            ClusterFault::ComeBack(lag) => {
                write!(f, "{lag:?} of commits are lost by a promotion, and the old primary comes back")
            }
            ClusterFault::Restore(lost) => {
                write!(f, "{lost:?} of commits are lost: the primary is started from a copy")
            }
            ClusterFault::CrashProcess => f.write_str("a process of the primary is killed"),
            ClusterFault::Crowd => f.write_str("a crowd at one lock"),
            ClusterFault::HangCommits(time) => write!(f, "commits hang for {time:?}"),
            ClusterFault::StepClock(seconds) => write!(f, "the primary's clock is set to {seconds:+} s"),
            ClusterFault::RestartEach => f.write_str("each killed and started again, one after the other"),
            ClusterFault::Replace(replaced, time) => {
                let stops = if *replaced == Replaced::Stops { ", and stopped twice" } else { "" };
                write!(
                    f,
                    "Leader replaced: cut off with half of the clients{stops}, for {time:?} after the election"
                )
            }
            ClusterFault::StallConnecting(time) => {
                write!(
                    f,
                    "half of the clients stopped for {time:?} while they connect to a follower, which is killed"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale {
        clients: 4,
        servers: 3,
        can_cut_off: true,
        is_pair: false,
        session: Duration::from_secs(3),
        time: Duration::from_secs(600),
    };

    #[test]
    fn a_seed_is_a_plan() {
        assert_eq!(Plan::new(7, SCALE), Plan::new(7, SCALE));
        assert_ne!(Plan::new(7, SCALE), Plan::new(8, SCALE));
    }

    #[test]
    fn a_long_plan_has_every_fault() {
        let plan = Plan::new(1, Scale { time: Duration::from_secs(3600), ..SCALE });
        assert!(plan.clients[0].is_empty());
        let text = plan.to_string();
        for part in [
            "killed, another comes",
            "stopped for 1.5s",
            "stopped for 2.7s",
            "stopped for 3.3s",
            "stopped for 9s",
            "Both(Hold)",
            "ToServer(Swallow)",
            "ToClient(Swallow)",
            "Delay(75ms)",
            "link 2",
            "all links",
            "Refuse",
            "Freeze",
            "Fin",
            "Reset",
            "ended by hand",
            "Leader killed",
            "Follower killed",
            "Leader stopped",
            "Follower stopped",
            "Leader's disk hangs",
            "Follower's disk hangs",
            "Leader cut off",
            "Follower cut off",
            "all killed at once",
            "one after the other",
            "cut off with half of the clients, for 4.5s",
            "cut off with half of the clients, for 9s",
            "cut off with half of the clients, and stopped twice",
            "stopped for 1.35s while they connect",
        ] {
            assert!(text.contains(part), "{part}");
        }
        let alone = Scale { time: Duration::from_secs(3600), servers: 1, can_cut_off: false, ..SCALE };
        let alone = Plan::new(1, alone).to_string();
        for part in [
            "Leader killed",
            "Leader stopped",
            "all killed at once",
            "Leader's disk hangs",
            "ended by an operator",
            "a crowd at one lock",
        ] {
            assert!(alone.contains(part), "{part}");
        }
        for part in ["Follower", "commits", "process of the primary", "clock", "cut off", "link 1"] {
            assert!(!alone.contains(part), "{part}");
        }
        let pair = |seed| Plan::new(seed, Scale { time: Duration::from_secs(3600), is_pair: true, ..SCALE });
        let keeps = pair(3).to_string();
        assert!(keeps.contains("a process of the primary is killed") && !keeps.contains("lost"), "{keeps}");
        let pair = [pair(1), pair(2)].map(|plan| plan.to_string());
        for part in [
            "Leader killed",
            "Leader stopped",
            "all killed at once",
            "replica promoted; its clock is set to +0 s",
            "1.5s of commits are lost: the primary is started from a copy",
            "9s of commits are lost: the primary is started from a copy",
            "a process of the primary is killed",
            "a crowd at one lock",
            "commits hang for 9s",
        ] {
            assert!(pair.iter().all(|pair| pair.contains(part)), "{part}");
        }
        for (part, seed) in [
            ("primary's clock is set to +3600 s", 1),
            ("primary's clock is set to -3600 s", 1),
            ("promoted; its clock is set to +3600 s", 1),
            ("promoted; its clock is set to -3600 s", 1),
            ("old primary comes back", 2),
        ] {
            assert!(pair[seed - 1].contains(part) && !pair[2 - seed].contains(part), "{part}");
        }
        let pair = pair.concat();
        assert!(!pair.contains("disk hangs") && !pair.contains("cut off"), "{pair}");
    }
}
