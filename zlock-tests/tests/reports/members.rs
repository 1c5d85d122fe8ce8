//! What a client reports of its memberships in groups.

use std::sync::{Arc, Mutex};

use zlock::mem::MemServer;
use zlock::observer::{MemberState, Observer};
use zlock::{Client, ErrorKind};
use zlock_testkit::{limit, until};

#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl Observer for Seen {
    fn member_changed(&self, group: &str, before: Option<MemberState>, now: Option<MemberState>) {
        let words = [before, now].map(|state| state.map_or("-", MemberState::as_str));
        self.0.lock().unwrap().push(format!("{group} {}", words.join(" ")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_membership_is_registered_missing_and_gone() {
    limit(async {
        let (server, seen) = (MemServer::new(), Arc::new(Seen::default()));
        let backend = server.connect();
        let link = backend.link();
        let client = Client::new(backend);
        client.observe(seen.clone()).unwrap();
        let take = || std::mem::take(&mut *seen.0.lock().unwrap());

        let unnamed = client.members("/app/workers").unwrap();
        let other = unnamed.join("w1", "").await.unwrap();
        let workers = unnamed.with_metric_name("workers");
        let member = workers.join("w7", "").await.unwrap();
        assert_eq!(workers.join("w7", "").await.unwrap_err().kind(), ErrorKind::Taken);
        assert_eq!(take(), ["workers - registered"]);

        link.expire();
        assert_eq!(member.lost().await.kind(), ErrorKind::SessionLost);
        until("registered again", async || member.is_registered()).await;
        assert_eq!(take(), ["workers registered missing", "workers missing registered"]);

        let thief = Client::new(server.connect());
        let taken = thief.members("/app/workers").unwrap().take_over("w7", "").await.unwrap();
        assert_eq!(member.ended().await.kind(), ErrorKind::Taken);
        assert_eq!(take(), ["workers registered missing"]);
        drop(member);
        assert_eq!(take(), ["workers missing -"]);

        taken.leave().await.unwrap();
        workers.join("w8", "").await.unwrap().leave().await.unwrap();
        assert_eq!(take(), ["workers - registered", "workers registered -"]);
        other.leave().await.unwrap();
    })
    .await;
}
