//! The errors of acquisitions that time out because the cluster refuses their requests.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions, DeleteOptions, GetOptions};
use tokio::task::JoinSet;
use zlock_core::{Error, ErrorKind, Phase};
use zlock_etcd::EtcdBackend;
use zlock_recipes::Client;
use zlock_testkit::etcd::{observer, options};
use zlock_testkit::{Etcd, have_etcd, limit_if, until};

const SHORT: Duration = Duration::from_secs(1);
const FULL: &str = "database space exceeded";

fn expect_cause(error: &Error, phase: Phase, part: &str) {
    assert_eq!(error.kind(), ErrorKind::Timeout(phase), "{error}");
    let cause = error.cause().unwrap_or_else(|| panic!("no cause: {error}")).to_string();
    assert!(cause.contains(part), "{cause}");
    assert!(error.to_string().ends_with(&format!(": {cause}")), "{error}");
}

/// The server's space quota is exhausted. It serves reads and refuses writes until the alarm is disarmed.
#[tokio::test]
async fn a_timeout_says_that_the_database_is_full() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let options = options(&server.connect_string()).with_operation_timeout(2 * SHORT);
        let client = Client::builder(EtcdBackend::connect(options).await.unwrap());
        let client = client.with_response_timeout(SHORT).unwrap().build();
        let lock = client.mutex("/full/lock").unwrap();
        let observer = observer(&server.connect_string()).await;
        let alarm = async |action| {
            observer.maintenance_client().alarm(action, AlarmType::Nospace, None).await.unwrap();
        };
        alarm(AlarmAction::Activate).await;
        expect_cause(&lock.acquire_timeout(SHORT).await.unwrap_err(), Phase::Queueing, FULL);
        expect_cause(&lock.try_acquire().await.unwrap_err(), Phase::Queueing, FULL);
        expect_cause(&lock.acquire_timeout(Duration::ZERO).await.unwrap_err(), Phase::Queueing, FULL);
        let template = client.lock_template("/full").unwrap().with_wait(SHORT / 2, 2).unwrap();
        let error = template.execute("lock", |_| async {}).await.unwrap_err();
        expect_cause(&error, Phase::Queueing, FULL);
        // Without a timeout of its own, the acquisition ends by the operation timeout, with the same cause.
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(FULL), "{error}");
        alarm(AlarmAction::Deactivate).await;
        let guard = lock.acquire_timeout(Duration::from_secs(20)).await.unwrap();
        let waited = lock.acquire_timeout(SHORT).await.unwrap_err();
        assert!(waited.cause().is_none(), "overcome: {waited}");
        drop(guard);
        until("released", async || client.pending_cleanups() == 0).await;
        client.close().await.unwrap();
    })
    .await;
}

/// The requests that fill the database are executed, although the server answers that there is no space. Only those after them
/// are refused.
#[tokio::test]
async fn what_fills_the_database_is_not_left_behind() {
    limit_if(have_etcd(), async {
        let server = Etcd::start_with(&["--quota-backend-bytes=4194304"]).await;
        let hosts = server.connect_string();
        // The session lasts longer than the test, so that its end removes nothing.
        let options = options(&hosts).with_ttl(Duration::from_secs(300)).with_operation_timeout(2 * SHORT);
        // A batch is refused as a whole by some versions, and executed by others.
        let backend = EtcdBackend::connect(options.with_batching(false)).await.unwrap();
        let client = Client::builder(backend).with_response_timeout(SHORT).unwrap().build();
        let observer = observer(&hosts).await;
        let mut tasks = JoinSet::new();
        for n in 0..32 {
            let client = client.clone();
            // A create is always in flight.
            tasks.spawn(async move {
                let mut held = Vec::new();
                loop {
                    let lock = client.mutex(format!("/quota/{n}-{}", held.len())).unwrap();
                    match lock.acquire().await {
                        Ok(guard) => held.push(guard),
                        Err(error) if error.to_string().contains(FULL) => return error.to_string(),
                        // On a slow machine, the server may not answer in time.
                        Err(_) => {}
                    }
                }
            });
        }
        for n in 0..32 {
            let mut keys = observer.kv_client();
            tasks.spawn(async move {
                loop {
                    if let Err(error) = keys.put(format!("/fill/{n}"), vec![0; 20_000], None).await {
                        return error.to_string();
                    }
                }
            });
        }
        for error in tasks.join_all().await {
            assert!(error.contains(FULL), "{error}");
        }
        // There is space again.
        let (mut keys, mut maintenance) = (observer.kv_client(), observer.maintenance_client());
        let deleted = keys.delete("/fill/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
        let compacted = CompactionOptions::new().with_physical();
        let deleted = deleted.header().unwrap();
        keys.compact(deleted.revision(), Some(compacted)).await.unwrap();
        let mut member = AlarmOptions::new();
        member.with_member(deleted.member_id());
        maintenance.defragment().await.unwrap();
        maintenance.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(member)).await.unwrap();
        until("all is cleaned up", async || client.pending_cleanups() == 0).await;
        let left = keys.get("/quota/", Some(GetOptions::new().with_prefix().with_keys_only())).await.unwrap();
        assert!(left.kvs().is_empty(), "{:?}", left.kvs());
        client.close().await.unwrap();
    })
    .await;
}
