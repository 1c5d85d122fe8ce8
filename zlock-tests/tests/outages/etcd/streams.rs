//! Streams of watches: a proxy ends them, or nothing polls the watches.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, Label, Target, WatchEvent};
use zlock_recipes::{Client, Release};
use zlock_testkit::etcd::{backend, create, path, watch};
use zlock_testkit::{Etcd, FaultProxy, have_etcd, limit_if, until};

/// How long requests are counted.
const WHILE: Duration = Duration::from_secs(5);

/// The maximum number of messages in that time. Each stream costs about five, and none is opened less than 50 ms after the
/// one before.
const MESSAGES: u64 = 200;

/// The longest pause between two streams, and some time for requests.
const PROMPT: Duration = Duration::from_secs(3);

/// Accepts the server's confirmation of a watch: the field `created` is its last one.
fn confirms_a_watch(answer: &[u8]) -> bool {
    answer.ends_with(&[3 << 3, 1])
}

/// A proxy ends each stream of watches right after the server has confirmed a watch. A waiter opens the next one after a
/// pause, and gets the lock when it is released.
#[tokio::test]
async fn a_waiter_whose_watches_end_at_once_does_not_spin() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let proxy = FaultProxy::start_grpc(server.addr()).await;
        let path = path("ended");
        let mutex = async |hosts: &str| Client::new(backend(hosts).await).mutex(path.as_str()).unwrap();
        let held = mutex(&server.connect_string()).await.acquire().await.unwrap();
        let waiter = mutex(&proxy.connect_string()).await;
        let messages = async || server.metrics().await.messages();
        let watches = async || messages().await.get("Watch").copied().unwrap_or(0);
        proxy.end_streams_after(confirms_a_watch);
        let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        until("a second watch", async || watches().await >= 2).await;

        let before = messages().await;
        sleep(WHILE).await;
        let after = messages().await;
        println!("{before:?}\n{after:?}\n{} connections", proxy.connections());
        let sent = after.values().sum::<u64>() - before.values().sum::<u64>();
        assert!(after["Watch"] > before["Watch"], "no stream was ended");
        assert!(sent <= MESSAGES, "{sent} messages in {WHILE:?}");

        let released = Instant::now();
        assert_eq!(held.release().await.unwrap(), Release::Released);
        let next = waiting.await.unwrap();
        println!("acquired {:?} after the release", released.elapsed());
        assert!(released.elapsed() < PROMPT);
        assert_eq!(next.release().await.unwrap(), Release::Released);
    })
    .await;
}

/// More changes than a watch keeps.
const CHANGES: usize = 100;

/// Watches that are not polled are removed at the server when they have received too many changes, and fire when they are
/// polled. One that has received its event before reports that event.
#[tokio::test]
async fn a_watch_that_is_not_polled_keeps_few_changes() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let (backend, path) = (backend(&server.connect_string()).await, path("unpolled"));
        let [first, second] =
            [create(&backend, &path, Label::Lock).await, create(&backend, &path, Label::Lock).await];
        let relabelled = create(&backend, &path, Label::Write).await.node;
        let kept = [
            backend.children_with_watch(&path).await.unwrap().1,
            backend.data_with_watch(&path, &first.node).await.unwrap().unwrap().1,
            watch(&backend, &path, &first.node).await,
        ];
        let (deleted, relabel) =
            (watch(&backend, &path, &second.node).await, watch(&backend, &path, &relabelled).await);
        assert_eq!(server.metrics().await.watches(), 5);
        backend.delete(&path, &Target::Node(second.node), None).await.unwrap();
        let relabelled = backend.relabel(&path, &relabelled, Label::Read).await.unwrap();
        for node in [&first.node, &relabelled] {
            for n in 0..CHANGES {
                backend.write_data(&path, node, None, n.to_string().as_bytes()).await.unwrap();
            }
        }
        until("all but the watch on the deleted node are removed", async || {
            server.metrics().await.watches() == 1
        })
        .await;
        for watch in kept {
            assert_eq!(timeout(PROMPT, watch).await.unwrap(), WatchEvent::Changed);
        }
        assert_eq!(timeout(PROMPT, deleted).await.unwrap(), WatchEvent::Deleted);
        assert_eq!(timeout(PROMPT, relabel).await.unwrap(), WatchEvent::Relabelled);
    })
    .await;
}
