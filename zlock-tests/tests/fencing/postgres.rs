//! Users' transactions on PostgreSQL that only commit while a lock is held.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::Client as Connection;
use zlock::postgres::PostgresFence as _;
use zlock_core::{CoordinationBackend, ErrorKind, Label, SessionState, Target};
use zlock_postgres::{Fence, PostgresBackend};
use zlock_recipes::Client;
use zlock_suite::Log;
use zlock_testkit::postgres::{TTL, backend, create, end_session, observer, options, path, release};
use zlock_testkit::{FaultProxy, limit, postgres_or_skip, until};

/// Creates a table of the user's data for one test.
async fn table(connection: &Connection, name: &str) {
    let sql = format!("DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (who text)");
    connection.batch_execute(&sql).await.unwrap();
}

async fn rows(connection: &Connection, name: &str) -> Vec<String> {
    let rows = connection.query(&format!("SELECT who FROM {name} ORDER BY who"), &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Writes in a transaction, with or without the fence. Returns the SQLSTATE if it fails.
async fn write(
    connection: &mut Connection,
    name: &str,
    who: &str,
    fence: Option<&Fence>,
) -> Result<(), String> {
    let code =
        |error: tokio_postgres::Error| error.code().map(|code| code.code().to_owned()).unwrap_or_default();
    let transaction = connection.transaction().await.unwrap();
    transaction.execute(&format!("INSERT INTO {name} VALUES ($1)"), &[&who]).await.unwrap();
    if let Some(fence) = fence {
        transaction.query_typed(fence.sql(), &fence.params()).await.map_err(code)?;
    }
    transaction.commit().await.map_err(code)
}

/// The holder's link is silent, so it does not know that its session is over and that another client holds the lock.
#[tokio::test]
async fn the_fenced_transaction_of_a_stale_holder_is_refused() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let backend = backend(server).await;
        let mut users = observer(server).await;
        table(&users, "stale").await;
        let (proxy, lock) = (FaultProxy::start(server.addr()).await, path("stale"));
        let cut_off = PostgresBackend::connect(options(&proxy.connect_string())).await.unwrap();
        let session = cut_off.session_events().current().id;
        let held = Client::new(cut_off).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        let fence = Fence::new(&held.node()).unwrap();
        assert_eq!(write(&mut users, "stale", "held", Some(&fence)).await, Ok(()));
        proxy.freeze().await;
        end_session(&observer(server).await, session).await;
        let next = Client::new(backend).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        assert!(held.is_held(), "it does not know");
        let refused = write(&mut users, "stale", "stale", Some(&fence)).await;
        assert_eq!(refused, Err(Fence::LOST.to_owned()));
        assert_eq!(write(&mut users, "stale", "unfenced", None).await, Ok(()));
        let fence = Fence::new(&next.node()).unwrap();
        assert_eq!(write(&mut users, "stale", "next", Some(&fence)).await, Ok(()));
        assert_eq!(rows(&users, "stale").await, ["held", "next", "unfenced"]);
        release(next).await;
    })
    .await;
}

/// A job waits for itself: its run is to end while its own transaction still fences the lock.
#[tokio::test]
async fn the_end_of_a_run_does_not_wait_for_ever_for_its_own_transaction() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let options = options(&server.addr().to_string()).with_operation_timeout(Duration::from_secs(1));
        let client = Client::new(PostgresBackend::connect(options).await.unwrap());
        let mut users = observer(server).await;
        let job = client.recurring_job(path("fenced-job").as_str()).unwrap().attempts(2);
        let tick = "2025-11-24T21:00:00Z".parse().unwrap();
        let run = job.begin(tick).await.unwrap().unwrap();
        let fence = run.postgres_fence().unwrap();
        let transaction = users.transaction().await.unwrap();
        transaction.query_typed(fence.sql(), &fence.params()).await.unwrap();
        let ended = timeout(Duration::from_secs(20), run.done()).await.expect("it waits for ever");
        let error = ended.unwrap_err();
        assert_eq!((error.kind(), error.is_lock_lost()), (ErrorKind::Unavailable, false), "{error}");
        assert!(error.to_string().contains("an open one with the lock's fence"), "{error}");
        transaction.commit().await.unwrap();
        // The background has removed the node, and the record says that the run has started.
        until("the lock is free", async || client.pending_cleanups() == 0).await;
        let run = job.begin(tick).await.unwrap().unwrap();
        assert_eq!(run.attempt(), 2);
        run.done().await.unwrap();
    })
    .await;
}

/// A fenced transaction is open when the holder's session ends: the takeover waits for it, and neither other locks nor the
/// heartbeats of others do.
#[tokio::test]
async fn a_takeover_waits_for_an_open_fenced_transaction() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (holder, other) = (backend(server).await, backend(server).await);
        let (operator, mut users) = (observer(server).await, observer(server).await);
        table(&users, "open").await;
        let (lock, elsewhere) = (path("open"), path("elsewhere"));
        let node = create(&holder, &lock, Label::Lock).await.node;
        let fence = Fence::new(&node.name).unwrap();
        let transaction = users.transaction().await.unwrap();
        transaction.query_typed(fence.sql(), &fence.params()).await.unwrap();
        transaction.execute("INSERT INTO open VALUES ('fenced')", &[]).await.unwrap();
        end_session(&operator, holder.session_events().current().id).await;
        let other = Client::new(other);
        let log = Log::of_this_thread();
        let waiting = other.mutex(lock.as_str()).unwrap();
        let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
        sleep(TTL + Duration::from_secs(1)).await;
        until("the log says why", async || log.with("its node is still there").len() == 1).await;
        assert!(!waiting.is_finished(), "granted beside an open transaction");
        let free = other.mutex(elsewhere.as_str()).unwrap();
        release(
            timeout(Duration::from_secs(10), free.acquire()).await.expect("another lock is free").unwrap(),
        )
        .await;
        let session = || other.session_events().current();
        until("heartbeats do not wait", async || session().state == SessionState::Connected).await;
        assert_eq!(session().epoch, 1);
        transaction.commit().await.unwrap();
        let guard = waiting.await.unwrap();
        assert_eq!(rows(&operator, "open").await, ["fenced"], "the next holder sees it");
        release(guard).await;
    })
    .await;
}

/// The holder's session is over, and its process goes on with short transactions, of which one is always open.
#[tokio::test]
async fn short_fenced_transactions_of_a_lost_holder_keep_no_lock_for_ever() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (proxy, lock) = (FaultProxy::start(server.addr()).await, path("overlapping"));
        let lost = PostgresBackend::connect(options(&proxy.connect_string())).await.unwrap();
        let held = Client::new(lost).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        let fence = Fence::new(&held.node()).unwrap();
        proxy.freeze().await;
        let overlapping = async |mut connection: Connection| -> String {
            loop {
                let transaction = connection.transaction().await.unwrap();
                if let Err(error) = transaction.query_typed(fence.sql(), &fence.params()).await {
                    return error.code().unwrap().code().to_owned();
                }
                sleep(Duration::from_millis(200)).await;
                transaction.commit().await.unwrap();
            }
        };
        let one = overlapping(observer(server).await);
        let other = async {
            sleep(Duration::from_millis(100)).await;
            overlapping(observer(server).await).await
        };
        let next = Client::new(backend(server).await).mutex(lock.as_str()).unwrap();
        let next = timeout(TTL + Duration::from_secs(6), next.acquire());
        let (one, other, next) = tokio::join!(one, other, next);
        assert_eq!([one, other], [Fence::LOST; 2]);
        release(next.expect("kept by transactions").unwrap()).await;
    })
    .await;
}

/// While the transaction of a writer is open, a downgrade waits, since readers must not see half of what it writes. That of a mutex
/// keeps nobody from asking for a revocation.
#[tokio::test]
async fn an_open_fenced_transaction_keeps_the_label_of_a_writer() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (holder, other) = (backend(server).await, backend(server).await);
        let (mut users, lock) = (observer(server).await, path("label"));
        let node = create(&holder, &lock, Label::Write).await.node;
        let fence = Fence::new(&node.name).unwrap();
        let transaction = users.transaction().await.unwrap();
        transaction.query_typed(fence.sql(), &fence.params()).await.unwrap();
        other.write_data(&lock, &node, None, b"revoke").await.unwrap();
        let data = other.data(&lock, &node).await.unwrap().unwrap();
        assert_eq!(data.data, b"revoke");
        transaction.commit().await.unwrap();
        let fence = fence.of_writer();
        let transaction = users.transaction().await.unwrap();
        transaction.query_typed(fence.sql(), &fence.params()).await.unwrap();
        let relabel = holder.relabel(&lock, &node, Label::Read);
        assert!(timeout(Duration::from_secs(1), relabel).await.is_err(), "relabelled");
        assert_eq!(other.children(&lock, None).await.unwrap()[0].label, Label::Write);
        transaction.commit().await.unwrap();
        until("it can be relabelled", async || holder.relabel(&lock, &node, Label::Read).await.is_ok()).await;
        holder.delete(&lock, &Target::Node(node), None).await.unwrap();
    })
    .await;
}

/// A lock is a reader's by now, and another client reads under it.
#[tokio::test]
async fn the_fence_of_a_writer_is_of_no_use_after_its_downgrade() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (one, two) = (Client::new(backend(server).await), Client::new(backend(server).await));
        let (mut users, lock) = (observer(server).await, path("downgraded"));
        table(&users, "downgraded").await;
        let writing = one.read_write_lock(lock.as_str()).unwrap().write().acquire().await.unwrap();
        let fence = writing.postgres_fence().unwrap();
        assert_eq!(write(&mut users, "downgraded", "writer", Some(&fence)).await, Ok(()));
        let reading = writing.downgrade().await.unwrap();
        let other = two.read_write_lock(lock.as_str()).unwrap().read().acquire().await.unwrap();
        let refused = write(&mut users, "downgraded", "stale", Some(&fence)).await;
        assert_eq!(refused, Err(Fence::LOST.to_owned()));
        let fence = reading.postgres_fence().unwrap();
        assert_eq!(write(&mut users, "downgraded", "reader", Some(&fence)).await, Ok(()));
        release(other).await;
        release(reading).await;
    })
    .await;
}

/// In REPEATABLE READ, a transaction that began before the grant passes the fence and reads what was there before the last
/// holder's write. So the lock is acquired before `BEGIN`.
#[tokio::test]
async fn an_old_snapshot_reads_what_an_earlier_holder_has_overwritten() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (holder, next) = (backend(server).await, backend(server).await);
        let (mut early, mut late) = (observer(server).await, observer(server).await);
        let mut writer = observer(server).await;
        table(&writer, "snapshot").await;
        let lock = path("snapshot");
        let first = create(&holder, &lock, Label::Lock).await.node;
        let waiting = create(&next, &lock, Label::Lock).await.node;
        let fence = Fence::new(&waiting.name).unwrap();
        let begin = async |connection: &mut Connection| {
            let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
            connection.batch_execute(sql).await.unwrap();
        };
        // Between the create and the grant.
        begin(&mut early).await;
        let earlier = Fence::new(&first.name).unwrap();
        assert_eq!(write(&mut writer, "snapshot", "first", Some(&earlier)).await, Ok(()));
        holder.delete(&lock, &Target::Node(first), None).await.unwrap();
        begin(&mut late).await;
        for (connection, expected) in [(&early, &[][..]), (&late, &["first".to_owned()])] {
            connection.query_typed(fence.sql(), &fence.params()).await.unwrap();
            assert_eq!(rows(connection, "snapshot").await, expected);
            connection.batch_execute("COMMIT").await.unwrap();
        }
        next.delete(&lock, &Target::Node(waiting), None).await.unwrap();
    })
    .await;
}
