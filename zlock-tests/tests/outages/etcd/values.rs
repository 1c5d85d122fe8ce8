//! Views of values on members that are behind, and after a compaction.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_recipes::{Client, Freshness, SharedValue, ValueWatch};
use zlock_testkit::etcd::{backend, observer};
use zlock_testkit::{Cut, Etcd, EtcdCluster, FaultProxy, have_etcd, have_strace, limit_to_if, until};

const LIMIT: Duration = Duration::from_secs(180);
const MOMENT: Duration = Duration::from_secs(2);

async fn value(hosts: &str) -> SharedValue {
    Client::new(backend(hosts).await).shared_value("/app/value").unwrap()
}

/// Waits until the view shows this number, and checks that it shows none before `newest`.
async fn until_shown(watch: &mut ValueWatch, number: u8, newest: &mut u8) {
    loop {
        let view = watch.changed().await.unwrap();
        let shown = view.value.unwrap().data[0];
        assert!(shown >= *newest, "{shown} after {newest}");
        *newest = shown;
        if shown == number && view.freshness == Freshness::Fresh {
            return;
        }
    }
}

/// A member whose disk hangs still responds to keep-alives, but does not learn of changes. A view that has seen newer values
/// elsewhere does not go back in time when it meets this member again.
#[tokio::test]
async fn a_view_never_goes_back_to_what_a_member_that_is_behind_has() {
    limit_to_if(LIMIT, have_etcd() && have_strace(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let [leader, other, behind] = [0, 1, 2].map(|n| &cluster.members()[(leader + n) % 3]);
        let writer = value(&leader.connect_string()).await;
        let set = async |number: u8| writer.update(|_| Some([number].into())).await.unwrap();
        set(1).await;
        let proxy = FaultProxy::start(behind.addr()).await;
        let watched = value(&proxy.connect_string()).await;
        let (mut watch, mut newest) = (watched.watch(), 0);
        until_shown(&mut watch, 1, &mut newest).await;
        let hung = behind.hang_disk();
        // The disk hangs at the first of these writes.
        for number in 2..=5 {
            set(number).await;
        }
        let move_to = |member: &Etcd| {
            proxy.set_upstream(member.addr());
            proxy.cut(Cut::Reset);
        };
        move_to(other);
        until_shown(&mut watch, 5, &mut newest).await;
        move_to(behind);
        set(6).await;
        let heal = async {
            sleep(MOMENT).await;
            drop(hung);
        };
        tokio::join!(until_shown(&mut watch, 6, &mut newest), heal);
    })
    .await;
}

/// An observer owns nothing, and the member still passes its keep-alives on. It turns to another member all the same.
#[tokio::test]
async fn an_observer_leaves_a_member_whose_disk_hangs() {
    limit_to_if(LIMIT, have_etcd() && have_strace(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let [leader, other, behind] = [0, 1, 2].map(|n| &cluster.members()[(leader + n) % 3]);
        let writer = value(&leader.connect_string()).await;
        let set = async |number: u8| writer.update(|_| Some([number].into())).await.unwrap();
        set(1).await;
        let hosts = format!("{},{}", behind.connect_string(), other.connect_string());
        let (before, watched) = (behind.metrics().await.watches(), value(&hosts).await);
        let (mut watch, mut newest) = (watched.watch(), 0);
        until_shown(&mut watch, 1, &mut newest).await;
        until("it watches there", async || behind.metrics().await.watches() > before).await;
        // At rest, with the next keep-alive.
        sleep(2 * MOMENT).await;
        let hung = behind.hang_disk();
        // The disk hangs at the first of these writes.
        for number in 2..=5 {
            set(number).await;
        }
        let shown = timeout(15 * MOMENT, until_shown(&mut watch, 5, &mut newest)).await;
        shown.expect("it shows an old value for ever");
        drop(hung);
    })
    .await;
}

/// A view misses nothing when the revisions that it would have had to ask for are compacted.
#[tokio::test]
async fn a_view_survives_compaction() {
    limit_to_if(LIMIT, have_etcd(), async {
        let server = Etcd::start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let observer = observer(&server.connect_string()).await;
        let watched = value(&proxy.connect_string()).await;
        let writer = value(&server.connect_string()).await;
        let mut watch = watched.watch();
        watch.changed().await.unwrap();
        for round in 0..3_u8 {
            let cut = round > 0;
            if cut {
                proxy.refuse().await;
                proxy.cut(Cut::Fin);
            }
            let mut last = None;
            for n in 0..20 {
                last = writer.update(|_| Some([round, n].into())).await.unwrap();
            }
            let revision = last.unwrap().version.number().cast_signed();
            observer.kv_client().compact(revision, None).await.unwrap();
            if cut {
                proxy.heal().await;
            }
            while watch.changed().await.unwrap().value.unwrap().data != [round, 19] {}
        }
    })
    .await;
}
