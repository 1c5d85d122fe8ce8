//! Users' transactions on MariaDB that only commit while a lock is held.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, Transaction, TxOpts};
use tokio::time::timeout;
use zlock_core::{CoordinationBackend, Label, SessionState};
use zlock_mysql::{Fence, MysqlBackend};
use zlock_recipes::Client;
use zlock_testkit::mysql::{backend, create, end_session, options, path, release, sql};
use zlock_testkit::{FaultProxy, MariaDb, limit, mariadb_or_skip, until};

const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

async fn users(server: &MariaDb, name: &str) -> Conn {
    sql::<u8>(server, &format!("CREATE OR REPLACE TABLE {name} (who VARCHAR(50)) ENGINE=InnoDB"), ()).await;
    options(&server.addr().to_string()).connect_client().await.unwrap()
}

async fn rows(server: &MariaDb, name: &str) -> Vec<String> {
    sql(server, &format!("SELECT who FROM {name} ORDER BY who"), ()).await
}

async fn begin(users: &mut Conn, level: IsolationLevel) -> Transaction<'_> {
    users.start_transaction(TxOpts::default().with_isolation_level(Some(level)).clone()).await.unwrap()
}

async fn execute(transaction: &mut Transaction<'_>, fence: &Fence) -> Result<(), String> {
    match transaction.exec_drop(fence.sql(), fence.params()).await {
        Ok(()) => Ok(()),
        Err(Error::Server(error)) => Err(error.state),
        Err(error) => panic!("{error}"),
    }
}

/// Writes in a transaction with the fence at its end. Returns the SQLSTATE if that fails.
async fn write(
    users: &mut Conn,
    level: IsolationLevel,
    name: &str,
    who: &str,
    fence: &Fence,
) -> Result<(), String> {
    let mut transaction = begin(users, level).await;
    transaction.exec_drop(format!("INSERT INTO {name} VALUES (?)"), (who,)).await.unwrap();
    match execute(&mut transaction, fence).await {
        Ok(()) => transaction.commit().await.map_err(|error| error.to_string()),
        Err(state) => {
            transaction.rollback().await.unwrap();
            Err(state)
        }
    }
}

/// The holder's link is silent, so it does not know that its session is over and that another client holds the lock.
#[tokio::test]
async fn the_fenced_transaction_of_a_stale_holder_is_refused() {
    limit(async {
        let Some(server) = mariadb_or_skip().await else { return };
        let backend = backend(server).await;
        let mut users = users(server, "stale").await;
        let (proxy, lock) = (FaultProxy::start(server.addr()).await, path("stale"));
        let cut_off = MysqlBackend::connect(options(&proxy.connect_string())).await.unwrap();
        let session = cut_off.session_events().current().id;
        let held = Client::new(cut_off).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        let fence = Fence::new(&held.node()).unwrap();
        for level in LEVELS {
            assert_eq!(write(&mut users, level, "stale", "held", &fence).await, Ok(()));
        }
        // One transaction has read what was there before the loss.
        let mut old = options(&server.addr().to_string()).connect_client().await.unwrap();
        let mut old = begin(&mut old, IsolationLevel::RepeatableRead).await;
        let before: Vec<u64> = old.query("SELECT COUNT(*) FROM stale").await.unwrap();
        assert_eq!(before, [3]);
        proxy.freeze().await;
        end_session(server, session).await;
        let next = Client::new(backend).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        assert!(held.is_held(), "it does not know");
        for level in LEVELS {
            assert_eq!(write(&mut users, level, "stale", "stale", &fence).await, Err(Fence::LOST.to_owned()));
        }
        assert_eq!(execute(&mut old, &fence).await, Err(Fence::LOST.to_owned()));
        old.rollback().await.unwrap();
        let fence = Fence::new(&next.node()).unwrap();
        assert_eq!(write(&mut users, IsolationLevel::RepeatableRead, "stale", "next", &fence).await, Ok(()));
        assert_eq!(rows(server, "stale").await, ["held", "held", "held", "next"]);
        release(next).await;
    })
    .await;
}

/// A fenced transaction is open when the holder's session ends: the takeover waits for it, and neither other locks nor the heartbeats of
/// others do.
#[tokio::test]
async fn a_takeover_waits_for_an_open_fenced_transaction() {
    limit(async {
        let Some(server) = mariadb_or_skip().await else { return };
        // With the third, it holds up the end of the session, too.
        for (i, level) in LEVELS.into_iter().take(2).enumerate() {
            let (holder, other) = (backend(server).await, backend(server).await);
            let name = format!("open{i}");
            let mut users = users(server, &name).await;
            let (lock, elsewhere) = (path(&name), path(&format!("elsewhere{i}")));
            let node = create(&holder, &lock, Label::Lock).await.node;
            let fence = Fence::new(&node.name).unwrap();
            let mut transaction = begin(&mut users, level).await;
            assert_eq!(execute(&mut transaction, &fence).await, Ok(()));
            transaction.query_drop(format!("INSERT INTO {name} VALUES ('fenced')")).await.unwrap();
            end_session(server, holder.session_events().current().id).await;
            let other = Client::new(other);
            let waiting = other.mutex(lock.as_str()).unwrap();
            let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            until("it waits", async || {
                let waits =
                    sql::<u64>(server, "SELECT COUNT(*) FROM zlock_entry WHERE path = ?", (lock.as_str(),))
                        .await;
                waits == [2]
            })
            .await;
            release(other.mutex(elsewhere.as_str()).unwrap().acquire().await.unwrap()).await;
            assert!(!waiting.is_finished());
            assert_eq!(other.session_events().current().state, SessionState::Connected);
            transaction.commit().await.unwrap();
            let guard = timeout(Duration::from_secs(10), waiting).await.expect("its turn").unwrap();
            assert_eq!(rows(server, &name).await, ["fenced"]);
            release(guard).await;
        }
    })
    .await;
}

/// A release waits for the fenced transaction of its own holder, and a writer that has become a reader has no fence.
#[tokio::test]
async fn the_fence_of_a_writer_needs_the_write_lock() {
    limit(async {
        let Some(server) = mariadb_or_skip().await else { return };
        let backend = backend(server).await;
        let mut users = users(server, "writer").await;
        let lock = path("writer");
        let node = create(&backend, &lock, Label::Write).await.node;
        let (any, writer) = (Fence::new(&node.name).unwrap(), Fence::new(&node.name).unwrap().of_writer());
        let level = IsolationLevel::RepeatableRead;
        assert_eq!(write(&mut users, level, "writer", "write", &writer).await, Ok(()));
        backend.relabel(&lock, &node, Label::Read).await.unwrap();
        assert_eq!(write(&mut users, level, "writer", "read", &writer).await, Err(Fence::LOST.to_owned()));
        assert_eq!(write(&mut users, level, "writer", "any", &any).await, Ok(()));
    })
    .await;
}
