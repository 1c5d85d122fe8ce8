//! The faults in which some clients reach only a part of the cluster.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_testkit::{Flow, Process};

use super::locks::Manner;
use super::plan::{Replaced, Role};
use super::sides::{Side, Sides};
use super::slot::slot_of;
use super::world::World;
use crate::history::{History, holds};

/// The time in which clients that have just connected send a heartbeat and get its response. A follower reports them to the
/// leader later, on average.
const HEARTBEAT: Duration = Duration::from_millis(60);

/// The time limit for an election behind a cut. The servers' election ports are not cut: once the replaced leader has noticed,
/// the others may elect it again, in vain.
const ELECTION: Duration = Duration::from_secs(15);

impl World {
    /// Carries out [`ClusterFault::Replace`](super::plan::ClusterFault::Replace).
    pub(super) async fn replace_leader(&self, replaced: Replaced, time: Duration) {
        let (cluster, Some(sides)) = (&self.cluster, &self.sides) else { return };
        let leader = cluster.find(Role::Leader).await;
        let others = (0..cluster.addrs().len()).filter(|server| *server != leader);
        cluster.set_apart(leader, true);
        let side = self.side_of_the_quiet_holder();
        sides.leave(side, |server| server == leader).await;
        sides.leave(side.other(), |server| server != leader).await;
        let mut election = pin!(async {
            let restarted = cluster.restart_those(others);
            if replaced == Replaced::Runs {
                return restarted.await;
            }
            cluster.pause(leader);
            let resumed = async {
                // Not so long that its clients lose their sessions.
                sleep(self.session * 2 / 5).await;
                cluster.resume(leader);
            };
            tokio::join!(resumed, restarted);
        });
        let is_replaced = timeout(ELECTION, election.as_mut()).await.is_ok();
        if is_replaced {
            self.say(format!("cluster: server {leader} is replaced"));
            self.stay_apart(replaced, leader, time).await;
        } else {
            self.say("cluster: nobody was elected in time");
        }
        cluster.set_apart(leader, false);
        sides.heal().await;
        if !is_replaced {
            election.await;
        }
        cluster.whole().await;
    }

    async fn stay_apart(&self, replaced: Replaced, leader: usize, time: Duration) {
        if replaced == Replaced::Runs {
            return sleep(time).await;
        }
        sleep(self.session / 2).await;
        self.cluster.pause(leader);
        sleep(time).await;
        self.cluster.resume(leader);
    }

    /// Carries out [`ClusterFault::StallConnecting`](super::plan::ClusterFault::StallConnecting).
    pub(super) async fn stall_connecting(&self, time: Duration) {
        let (cluster, Some(sides)) = (&self.cluster, &self.sides) else { return };
        let follower = cluster.find(Role::Follower).await;
        // Until most locks have a holder that stays.
        sleep(self.session / 10).await;
        self.connect_late(sides, self.side_of_the_quiet_holder(), follower, time).await;
        sleep(HEARTBEAT).await;
        cluster.kill(follower);
        // Until the sessions have ended, and the clients know.
        sleep(self.session * 6 / 5).await;
        sides.heal().await;
        cluster.restart(follower).await;
        cluster.whole().await;
    }

    /// Returns the side of the client that holds the quiet clients' lock. Such a session writes nothing while it holds: a server
    /// that cannot commit answers none of a session's requests after a write.
    fn side_of_the_quiet_holder(&self) -> Side {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let histories: Vec<_> = files.filter_map(|file| quiet_history(&file.path())).collect();
        let last = holds(&histories).into_iter().max_by_key(|hold| hold.until);
        last.and_then(|hold| slot_of(&hold.client)).map_or(Side::Even, Side::of)
    }

    /// Makes the clients of one side connect to a server, and stops them before they receive its response.
    async fn connect_late(&self, sides: &Sides, side: Side, server: usize, time: Duration) {
        sides.responses(side, server, Flow::Hold);
        sides.leave(side, |other| other == server).await;
        sleep(self.session / 15).await;
        let clients = (0..self.processes.len()).filter(|client| Side::of(*client) == side);
        clients.clone().for_each(|client| self.process(client).iter().for_each(Process::pause));
        sides.responses(side, server, Flow::Pass);
        sleep(time).await;
        clients.for_each(|client| self.process(client).iter().for_each(Process::resume));
    }
}

/// Returns the history in this file, if it is one of a quiet client.
fn quiet_history(file: &Path) -> Option<History> {
    let name = file.file_name()?.to_str()?.strip_suffix(".history")?;
    let is_quiet = Manner::of(slot_of(name)?) == Manner::Quiet;
    History::parse(name, &std::fs::read_to_string(file).ok().filter(|_| is_quiet)?).ok()
}
