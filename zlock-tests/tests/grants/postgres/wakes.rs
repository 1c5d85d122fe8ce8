//! How a waiter learns that its predecessor is gone: by a notification, or by the poll if there is none.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, Existence, Label, LockPath, NodeId, Target};
use zlock_postgres::{PostgresBackend, PostgresOptions};
use zlock_testkit::postgres::{backend, create, observer, options, path, remove, watch};
use zlock_testkit::{
    PgBouncer, PostgresServer, have_pgbouncer, have_postgres, limit, limit_if, postgres_or_skip,
};

/// The longest time between two polls, and some more for a busy machine.
const POLL: Duration = Duration::from_secs(3);

/// Deletes a node as a client does that ends before it notifies anybody.
async fn delete_silently(server: &PostgresServer, lock: &LockPath, id: &NodeId) {
    remove(&observer(server).await, lock, id.as_str()).await;
}

/// Makes a client receive notifications: it does while it waits, and some seconds longer.
async fn listen(holder: &PostgresBackend, waiter: &PostgresBackend) {
    let lock = path("listen");
    let node = create(holder, &lock, Label::Lock).await.node;
    let watch = watch(waiter, &lock, &node).await;
    holder.delete(&lock, &Target::Node(node), None).await.unwrap();
    watch.await;
}

/// The notification arrives when the waiter has not asked for it yet, but its create has seen the node.
#[tokio::test]
async fn a_notification_before_the_watch_is_remembered() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (holder, waiter) = (backend(server).await, backend(server).await);
        listen(&holder, &waiter).await;
        let lock = path("remembered");
        let first = create(&holder, &lock, Label::Lock).await.node;
        create(&waiter, &lock, Label::Lock).await;
        holder.delete(&lock, &Target::Node(first.clone()), None).await.unwrap();
        // Until it has arrived.
        sleep(Duration::from_millis(300)).await;
        let existence = waiter.exists_with_watch(&lock, &first).await.unwrap();
        assert!(matches!(existence, Existence::Deleted), "{existence:?}");
    })
    .await;
}

/// Checks that a waiter is woken sooner than the next poll.
async fn is_woken(holder: &PostgresBackend, waiter: &PostgresBackend) {
    listen(holder, waiter).await;
    let mut fastest = POLL;
    // A poll may be due at the moment of one delete, but not of each.
    for _ in 0..5 {
        let lock = path("notified");
        let first = create(holder, &lock, Label::Lock).await.node;
        create(waiter, &lock, Label::Lock).await;
        let watch = watch(waiter, &lock, &first).await;
        let began = Instant::now();
        holder.delete(&lock, &Target::Node(first), None).await.unwrap();
        watch.await;
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < Duration::from_millis(200), "{fastest:?}");
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_notification() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        is_woken(&backend(server).await, &backend(server).await).await;
    })
    .await;
}

/// Operations go through a pooler, and notifications come from the server itself.
#[tokio::test]
async fn beside_a_pooler_a_waiter_is_woken_by_the_notification() {
    limit_if(have_pgbouncer(), async {
        let Some(server) = postgres_or_skip().await else { return };
        let holder = backend(server).await;
        let pooler = PgBouncer::start(server).await;
        let listen_url = server.url().replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
        let url = format!("{}?pooler=true&listen_url={listen_url}", pooler.url());
        let waiter = PostgresBackend::connect(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
        is_woken(&holder, &waiter).await;
    })
    .await;
}

/// The client that deletes the node ends before it notifies anybody; and the waiter's connections are ended meanwhile.
#[tokio::test]
async fn the_poll_finds_what_no_notification_told() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        let (holder, waiter) = (backend(&server).await, backend(&server).await);
        listen(&holder, &waiter).await;
        for ends_connections in [false, true] {
            let lock = path("silent");
            let first = create(&holder, &lock, Label::Lock).await.node;
            create(&waiter, &lock, Label::Lock).await;
            let watch = watch(&waiter, &lock, &first).await;
            if ends_connections {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'zlock'";
                assert!(observer(&server).await.execute(sql, &[]).await.unwrap() > 0);
            }
            delete_silently(&server, &lock, &first.id).await;
            timeout(POLL, watch).await.expect("the poll");
        }
    })
    .await;
}

/// Through a pooler in transaction mode, LISTEN succeeds and has no effect. With this session timeout, polls were 5 seconds apart if
/// notifications were taken to arrive.
#[tokio::test]
async fn behind_a_pooler_the_poll_is_enough() {
    limit_if(have_pgbouncer(), async {
        let Some(server) = postgres_or_skip().await else { return };
        let holder = backend(server).await;
        let pooler = PgBouncer::start(server).await;
        let options = options(&pooler.addr().to_string()).with_pooler(true).with_ttl(Duration::from_secs(20));
        let waiter = PostgresBackend::connect(options).await.unwrap();
        let lock = path("pooled");
        for _ in 0..2 {
            let first = create(&holder, &lock, Label::Lock).await.node;
            let second = create(&waiter, &lock, Label::Lock).await.node;
            let watch = watch(&waiter, &lock, &first).await;
            holder.delete(&lock, &Target::Node(first), None).await.unwrap();
            timeout(POLL, watch).await.expect("the poll");
            waiter.delete(&lock, &Target::Node(second), None).await.unwrap();
        }
    })
    .await;
}
