//! The errors of acquisitions that time out because the cluster refuses their requests.

use std::error::Error as _;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType};
use zlock_core::{Error, ErrorKind, Phase};
use zlock_etcd::EtcdBackend;
use zlock_recipes::Client;
use zlock_testkit::etcd::{observer, options};
use zlock_testkit::{Etcd, have_etcd, limit, until};

const SHORT: Duration = Duration::from_secs(1);

fn expect_cause(error: &Error, phase: Phase, part: &str) {
    assert_eq!(error.kind(), ErrorKind::Timeout(phase), "{error}");
    let cause = error.source().unwrap_or_else(|| panic!("no cause: {error}")).to_string();
    assert!(cause.contains(part), "{cause}");
    assert!(error.to_string().ends_with(&format!(": {cause}")), "{error}");
}

/// The server's space quota is exhausted. It serves reads and refuses writes until the alarm is disarmed.
#[tokio::test]
async fn a_timeout_says_that_the_database_is_full() {
    const FULL: &str = "database space exceeded";
    if !have_etcd() {
        return;
    }
    limit(async {
        let server = Etcd::start().await;
        let options = options(&server.connect_string()).with_operation_timeout(2 * SHORT);
        let client = Client::builder(EtcdBackend::connect(options).await.unwrap());
        let client = client.with_operation_timeout(SHORT).unwrap().build();
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
        assert!(waited.source().is_none(), "overcome: {waited}");
        drop(guard);
        until("released", async || client.pending_cleanups() == 0).await;
        client.close().await.unwrap();
    })
    .await;
}
