//! Clients that are created before their store is available.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::{ErrorKind, Phase, SessionState};
use zlock_etcd::EtcdBackend;
use zlock_recipes::Client;
use zlock_testkit::etcd::options;
use zlock_testkit::{Etcd, have_etcd, limit_if};

use crate::files;

#[tokio::test]
async fn a_client_is_used_before_its_server_starts() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        server.stop();
        let client = Client::new(EtcdBackend::connect_lazy(options(&server.connect_string())).unwrap());
        let session = client.session_events().current();
        assert_eq!((session.epoch, session.state), (0, SessionState::Lost));
        let (mutex, time) = (client.mutex("/lazy").unwrap(), Duration::from_millis(500));
        let began = Instant::now();
        let error = mutex.acquire_timeout(time).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
        assert!(began.elapsed() >= time);
        assert!(error.to_string().contains("no session with"), "{error}");
        let waiting = mutex.clone();
        let waiter = tokio::spawn(async move { waiting.acquire_timeout(Duration::from_secs(60)).await });
        server.restart().await;
        let guard = match waiter.await.unwrap() {
            // On a busy machine, the start may take longer than the operation timeout.
            Err(error) if error.kind() == ErrorKind::Unavailable => mutex.acquire().await.unwrap(),
            acquired => acquired.unwrap(),
        };
        assert!(guard.is_held());
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_no_wait_mends_is_reported_by_calls() {
    limit_if(have_etcd(), async {
        let invalid = EtcdBackend::connect_lazy(options("h:x")).unwrap_err();
        assert_eq!(invalid.kind(), ErrorKind::InvalidArgument, "{invalid}");
        let server = Etcd::start_tls().await;
        let plain = options(&server.connect_string());
        let client = Client::new(EtcdBackend::connect_lazy(plain).unwrap());
        let mutex = client.mutex("/lazy").unwrap();
        let error = mutex.acquire_timeout(Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
        assert!(error.to_string().contains("answers with TLS"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn files_are_read_off_the_runtime_and_one_at_a_time() {
    limit_if(have_etcd(), async {
        let (server, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
        let file = folder.path().join("password");
        let secret = options(&server.connect_string()).with_user("orders", &*file);
        let client = Client::new(EtcdBackend::connect_lazy(secret.clone()).unwrap());
        let connect = async || {
            let options = secret.clone().with_connect_timeout(Duration::from_secs(1));
            EtcdBackend::connect(options).await.unwrap_err()
        };
        let mutex = client.mutex("/files").unwrap();
        files::are_read_off_the_runtime_and_one_at_a_time(&file, connect, mutex).await;
    })
    .await;
}
