//! The cost of a fleet that restarts, for those who watch it.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock::mem::{MemServer, Operation};
use zlock::{Client, Freshness};

const MEMBERS: u64 = 500;

/// Over how long the members of the fleet start again.
const RESTART: Duration = Duration::from_secs(5);

/// 500 members leave and join again within five seconds. An observer sees all of them, and lists the group ten times a second at
/// most.
#[tokio::test(start_paused = true)]
async fn a_fleet_that_restarts_costs_an_observer_a_bounded_number_of_reads() {
    let server = MemServer::new();
    let mut fleet = Vec::new();
    for id in 0..MEMBERS {
        let client = Client::new(server.connect());
        let member = client.members("/app/workers").unwrap().join(format!("w{id:03}"), "old").await.unwrap();
        fleet.push((client, member));
    }
    let observer = Client::new(server.connect());
    let mut watch = observer.members("/app/workers").unwrap().watch();
    let view = watch.changed().await.unwrap();
    assert_eq!((view.members.len(), view.freshness), (500, Freshness::Fresh));
    server.reset_requests();
    let mut restarts = JoinSet::new();
    for (id, (client, member)) in (0_u32..).zip(fleet) {
        restarts.spawn(async move {
            // Not in the order of the IDs.
            sleep(RESTART * (id * 7 % 500) / 500).await;
            member.leave().await.unwrap();
            sleep(Duration::from_millis(20)).await;
            let member =
                client.members("/app/workers").unwrap().join(format!("w{id:03}"), "new").await.unwrap();
            (client, member)
        });
    }
    let began = Instant::now();
    loop {
        let view = watch.changed().await.unwrap();
        assert_eq!(view.freshness, Freshness::Fresh);
        if view.members.len() == 500 && view.members.iter().all(|member| member.payload == b"new") {
            break;
        }
    }
    assert!(began.elapsed() < RESTART + Duration::from_secs(1), "{:?}", began.elapsed());
    let counts = server.request_counts();
    let (lists, reads) = (counts[&Operation::List], counts[&Operation::Data]);
    // Each member is read when it is new, and nothing is read twice.
    assert!((500..=520).contains(&reads), "{reads} reads of members");
    assert!((40..=60).contains(&lists), "{lists} listings");
    drop(restarts.join_all().await);
}
