//! Observers of an election on members that are behind, and after a compaction.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::FencingToken;
use zlock_recipes::{Client, Election, Freshness, LeaderWatch};
use zlock_testkit::etcd::{backend, observer};
use zlock_testkit::{Cut, Etcd, EtcdCluster, FaultProxy, have_etcd, have_strace, limit_to_if};

const LIMIT: Duration = Duration::from_secs(180);
const MOMENT: Duration = Duration::from_secs(2);

async fn election(hosts: &str) -> Election {
    Client::new(backend(hosts).await).election("/app/leader").unwrap()
}

/// Leads for one more term, and returns its number.
async fn term(election: &Election) -> FencingToken {
    let led = election.campaign().await.unwrap();
    let term = led.term();
    led.resign().await.unwrap();
    term
}

/// Waits until the view shows this term, and checks that it shows none before `newest`.
async fn until_shown(leaders: &mut LeaderWatch, term: FencingToken, newest: &mut Option<FencingToken>) {
    loop {
        let view = leaders.changed().await.unwrap();
        let Some(leader) = view.leader else { continue };
        assert!(Some(leader.term) >= *newest, "{} after {newest:?}", leader.term);
        *newest = Some(leader.term);
        if leader.term == term && view.freshness == Freshness::Fresh {
            return;
        }
    }
}

/// A member whose disk hangs still responds to keep-alives, but does not learn of changes. An observer that has seen later
/// terms elsewhere does not go back to an earlier one when it meets this member again.
#[tokio::test]
async fn an_observer_never_goes_back_to_the_term_of_a_member_that_is_behind() {
    limit_to_if(LIMIT, have_etcd() && have_strace(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let [leader, other, behind] = [0, 1, 2].map(|n| &cluster.members()[(leader + n) % 3]);
        let candidate = election(&leader.connect_string()).await;
        let led = candidate.campaign().await.unwrap();
        let proxy = FaultProxy::start(behind.addr()).await;
        let observed = election(&proxy.connect_string()).await;
        let (mut leaders, mut newest) = (observed.observe(), None);
        until_shown(&mut leaders, led.term(), &mut newest).await;
        let hung = behind.hang_disk();
        // The disk hangs at the first of these writes.
        led.resign().await.unwrap();
        term(&candidate).await;
        let led = candidate.campaign().await.unwrap();
        let move_to = |member: &Etcd| {
            proxy.set_upstream(member.addr());
            proxy.cut(Cut::Reset);
        };
        move_to(other);
        until_shown(&mut leaders, led.term(), &mut newest).await;
        move_to(behind);
        led.resign().await.unwrap();
        let led = candidate.campaign().await.unwrap();
        let heal = async {
            sleep(MOMENT).await;
            drop(hung);
        };
        tokio::join!(until_shown(&mut leaders, led.term(), &mut newest), heal);
        led.resign().await.unwrap();
    })
    .await;
}

/// An observer misses nothing when the revisions that it would have had to ask for are compacted.
#[tokio::test]
async fn an_observer_survives_compaction() {
    limit_to_if(LIMIT, have_etcd(), async {
        let server = Etcd::start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let by_hand = observer(&server.connect_string()).await;
        let observed = election(&proxy.connect_string()).await;
        let candidate = election(&server.connect_string()).await;
        let (mut leaders, mut newest) = (observed.observe(), None);
        assert_eq!(leaders.changed().await.unwrap().leader, None);
        for is_cut in [false, true, true] {
            if is_cut {
                proxy.refuse().await;
                proxy.cut(Cut::Fin);
            }
            for _ in 0..20 {
                term(&candidate).await;
            }
            let led = candidate.campaign().await.unwrap();
            let revision = led.term().number().cast_signed();
            by_hand.kv_client().compact(revision, None).await.unwrap();
            if is_cut {
                proxy.heal().await;
            }
            until_shown(&mut leaders, led.term(), &mut newest).await;
            led.resign().await.unwrap();
        }
    })
    .await;
}
