//! Clients that are created before their store is available.

use std::net::TcpListener;
use std::time::Duration;

use tokio::time::Instant;
use zlock_core::{ErrorKind, Phase, SessionState};
use zlock_recipes::Client;
use zlock_testkit::zk::options;
use zlock_testkit::{Etcd, Port, ZooKeeper, have_etcd, have_zookeeper, limit, limit_if};
use zlock_zk::ZkBackend;

use crate::files;

#[tokio::test]
async fn a_client_is_used_before_its_server_starts() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        server.stop();
        let client = Client::new(ZkBackend::connect_lazy(options(&server.connect_string())).unwrap());
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
        let invalid = ZkBackend::connect_lazy(options("h:x")).unwrap_err();
        assert_eq!(invalid.kind(), ErrorKind::InvalidArgument, "{invalid}");
        // A different kind of server is reported long before the connect timeout.
        let server = Etcd::start().await;
        let wrong = options(&server.connect_string()).with_connect_timeout(Duration::from_secs(3600));
        let client = Client::new(ZkBackend::connect_lazy(wrong).unwrap());
        let mutex = client.mutex("/lazy").unwrap();
        let error = mutex.acquire_timeout(Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
        assert!(error.to_string().contains("which is not ZooKeeper"), "{error}");
    })
    .await;
}

/// Long before the connect timeout, and with a shorter operation timeout, too.
#[tokio::test]
async fn an_operation_that_waits_for_a_session_says_why_there_is_none() {
    limit(async {
        let (closed, silent) = (Port::reserve(), TcpListener::bind("127.0.0.1:0").unwrap());
        let silent = silent.local_addr().unwrap();
        for (host, why) in [
            (closed.addr(), "connection refused: is a server running there?"),
            (silent, "accepts connections but does not respond"),
        ] {
            let options = options(&host.to_string()).with_operation_timeout(Duration::from_secs(1));
            let client = Client::new(ZkBackend::connect_lazy(options).unwrap());
            let mutex = client.mutex("/lazy").unwrap();
            let error = mutex.acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains(why), "{error}");
            let error = mutex.acquire_timeout(Duration::from_secs(1)).await.unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn files_are_read_off_the_runtime_and_one_at_a_time() {
    limit_if(have_zookeeper(), async {
        let (server, folder) = (ZooKeeper::start().await, tempfile::tempdir().unwrap());
        let file = folder.path().join("password");
        let secret = options(&server.connect_string()).with_digest("orders", &*file);
        let client = Client::new(ZkBackend::connect_lazy(secret.clone()).unwrap());
        let connect = async || {
            let options = secret.clone().with_connect_timeout(Duration::from_secs(1));
            ZkBackend::connect(options).await.unwrap_err()
        };
        let mutex = client.mutex("/files").unwrap();
        files::are_read_off_the_runtime_and_one_at_a_time(&file, connect, mutex).await;
    })
    .await;
}
