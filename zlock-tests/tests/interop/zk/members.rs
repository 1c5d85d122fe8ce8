//! Members of Curator's `GroupMember` and of zlock in one group: each side sees the other's, also when some are killed. And what a
//! permit of Curator's semaphore costs, beside a slot.

use std::time::Duration;

use tokio::time::sleep;
use zlock::{ErrorKind, MembersView, MembersWatch};
use zlock_testkit::zk::{FOREVER, Meter, connect, cost};
use zlock_testkit::{Process, ZooKeeper, have, have_zookeeper, limit_if, report};

use super::peer::{Kind, Peer};

const PATH: &str = "/peers/members";
const SESSION: Duration = Duration::from_secs(4);

fn have_both() -> bool {
    have_zookeeper() && have(Kind::Curator.missing().as_deref())
}

/// A member of zlock in a process of its own, until it is killed.
#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn child_that_is_a_member() {
    let client = connect(std::env::var("ZLOCK_CHILD_HOSTS").unwrap(), SESSION).await;
    let group = client.members(PATH).unwrap();
    let _member = group.take_over("z2", std::env::var("ZLOCK_CHILD_PAYLOAD").unwrap()).await.unwrap();
    sleep(Duration::from_secs(3600)).await;
}

fn spawn_member(server: &ZooKeeper, payload: &str) -> Process {
    let hosts = server.connect_string();
    let told = [("ZLOCK_CHILD_HOSTS", hosts.as_str()), ("ZLOCK_CHILD_PAYLOAD", payload)];
    Process::spawn_test(concat!(module_path!(), "::child_that_is_a_member"), &told)
}

fn text(view: &MembersView) -> String {
    let member = |member: &zlock::Member| format!("{}={}", member.id, member.payload.escape_ascii());
    view.members.iter().map(member).collect::<Vec<_>>().join(",")
}

/// Waits until both an observer of ours and a member of Curator's see these members.
async fn all_see(watch: &mut MembersWatch, peer: &mut Peer, expected: &str) {
    let ours = async { while text(&watch.changed().await.unwrap()) != expected {} };
    let theirs = async {
        loop {
            peer.tell("members").await;
            if peer.answer().await.as_deref() == Some(expected) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::join!(ours, theirs);
}

#[tokio::test]
async fn both_see_each_others_members_when_some_are_killed() {
    limit_if(have_both(), async {
        let server = ZooKeeper::shared().await;
        let start = || Peer::start(Kind::Curator, server, PATH, SESSION);
        let (mut one, mut two) = tokio::join!(start(), start());
        let client = connect(server.connect_string(), SESSION).await;
        let group = client.members(PATH).unwrap();
        let mut watch = client.members(PATH).unwrap().watch();
        let z1 = group.join("z1", "ours").await.unwrap();
        one.ask("member c1 theirs", "joined").await;
        two.ask("member c2 theirs", "joined").await;
        let mut child = spawn_member(server, "old");
        all_see(&mut watch, &mut one, "c1=theirs,c2=theirs,z1=ours,z2=old").await;

        // An ID of theirs is taken, and what they write is seen.
        let error = group.join("c1", "ours").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
        one.ask("payload changed", "set").await;
        all_see(&mut watch, &mut one, "c1=changed,c2=theirs,z1=ours,z2=old").await;

        // One of each is killed. Ours starts again inside its old session, whose end takes nothing away.
        two.process.kill();
        child.kill();
        child = spawn_member(server, "new");
        all_see(&mut watch, &mut one, "c1=changed,z1=ours,z2=new").await;
        sleep(SESSION + SESSION / 2).await;
        let now = client.members(PATH).unwrap().list().await.unwrap();
        let ids: Vec<_> = now.iter().map(|member| &*member.id).collect();
        assert_eq!(ids, ["c1", "z1", "z2"]);
        one.tell("members").await;
        one.expect("c1=changed,z1=ours,z2=new").await;

        // The dead one's ID is free, and theirs leaves in order.
        let c2 = group.join("c2", "ours now").await.unwrap();
        child.kill();
        all_see(&mut watch, &mut one, "c1=changed,c2=ours now,z1=ours").await;
        one.ask("depart", "left").await;
        while text(&watch.changed().await.unwrap()) != "c2=ours now,z1=ours" {}
        drop((z1, c2));
        while !text(&watch.changed().await.unwrap()).is_empty() {}
    })
    .await;
}

#[tokio::test]
async fn a_slot_beside_a_permit_of_curators_semaphore() {
    limit_if(have_both(), async {
        let mut meter = Meter::start().await;
        let mut peer = Peer::start(Kind::Curator, &meter.server, PATH, FOREVER).await;
        peer.ask("permits 3", "done").await;
        let before = meter.counts().await;
        peer.ask("permits 20", "done").await;
        let theirs = cost(before, meter.counts().await);

        let client = connect(meter.hosts(), FOREVER).await;
        let slots = client.slots(format!("{PATH}-slots"), 8).unwrap();
        for _ in 0..3 {
            slots.acquire().await.unwrap().release().await.unwrap();
        }
        let before = meter.counts().await;
        for _ in 0..20 {
            slots.acquire().await.unwrap().release().await.unwrap();
        }
        let ours = cost(before, meter.counts().await);
        report(format_args!("REQUESTS and writes of 20: permits of Curator {theirs:?}, slots {ours:?}"));
        // It has no recipe that gives a number, so this is a permit and no more.
        assert!(ours.0 <= theirs.0 && ours.1 <= theirs.1, "{ours:?}, Curator {theirs:?}");
    })
    .await;
}
