//! Clients that are there before their store is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use common::options;
use tokio::time::Instant;
use zlock_core::{ErrorKind, Phase, SessionState};
use zlock_recipes::{Client, InterProcessMutex};
use zlock_testkit::{Etcd, ZooKeeper, have_etcd, have_zookeeper, limit};
use zlock_zk::ZkBackend;

#[tokio::test]
async fn a_client_is_used_before_its_server_starts() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let server = ZooKeeper::start().await;
        server.stop();
        let client = Client::new(ZkBackend::connect_lazy(options(&server.connect_string())).unwrap());
        let session = client.session_events().current();
        assert_eq!((session.epoch, session.state), (0, SessionState::Lost));
        let (mutex, time) = (InterProcessMutex::new(&client, "/lazy").unwrap(), Duration::from_millis(500));
        let began = Instant::now();
        let error = mutex.acquire_timeout(time).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
        assert!(began.elapsed() >= time);
        assert!(error.to_string().contains("no session with"), "{error}");
        let waiting = mutex.clone();
        let waiter = tokio::spawn(async move { waiting.acquire_timeout(Duration::from_secs(60)).await });
        server.restart().await;
        let guard = match waiter.await.unwrap() {
            // A busy machine may need longer for the start than an operation may take.
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
    limit(async {
        if !have_etcd() {
            return;
        }
        let invalid = ZkBackend::connect_lazy(options("h:x")).unwrap_err();
        assert_eq!(invalid.kind(), ErrorKind::InvalidArgument, "{invalid}");
        // Another kind of server, long before the connect timeout.
        let server = Etcd::start().await;
        let wrong = options(&server.connect_string()).with_connect_timeout(Duration::from_secs(3600));
        let client = Client::new(ZkBackend::connect_lazy(wrong).unwrap());
        let mutex = InterProcessMutex::new(&client, "/lazy").unwrap();
        let error = mutex.acquire_timeout(Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
        assert!(error.to_string().contains("which is not ZooKeeper"), "{error}");
    })
    .await;
}
