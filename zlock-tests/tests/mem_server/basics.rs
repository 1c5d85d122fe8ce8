//! The basic operations, and the view of many clients in one test.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::{CoordinationBackend, Label, Needs, NodeIds, SessionState, Target, WatchEvent};
use zlock_mem::{MemServer, Operation};
use zlock_testkit::mem::watch;

use crate::common::{limit, path};

#[tokio::test(start_paused = true)]
async fn two_clients_queue_up() {
    limit(async {
        let (server, tokens, path) = (MemServer::new(), NodeIds::seeded(1), path());
        let (a, b) = (server.connect(), server.connect());
        assert_eq!(a.session_events().current().state, SessionState::Connected);
        let first = a
            .create_ephemeral_sequential(&path, Label::Lock, &tokens.next(), b"a", Needs::Queue)
            .await
            .unwrap();
        let second = b
            .create_ephemeral_sequential(&path, Label::Lock, &tokens.next(), b"b", Needs::Queue)
            .await
            .unwrap();
        let queue = second.queue.listed().unwrap();
        assert_eq!(queue.position(&second.node.id), Some(1));
        assert!(second.node.fencing_token > first.node.fencing_token);

        let seen = &queue[0];
        assert_eq!((seen.session, seen.fencing_token), (None, None), "as on ZooKeeper");
        let watch = watch(&b, &path, seen).await;
        assert_eq!(server.watches(), 1);
        a.delete(&path, &Target::Node(first.node), None).await.unwrap();
        assert_eq!(watch.await, WatchEvent::Deleted);
        assert_eq!(server.watches(), 0);

        drop(b);
        assert!(server.names(&path).is_empty());
        assert_eq!(server.sessions().len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_as_zookeeper_would() {
    limit(async {
        let (server, tokens, path) = (MemServer::new(), NodeIds::seeded(1), path());
        let a = server.connect();
        let began = Instant::now();
        let create = async || {
            a.create_ephemeral_sequential(&path, Label::Lock, &tokens.next(), b"", Needs::Queue)
                .await
                .unwrap()
        };
        create().await;
        let counts: Vec<_> = server.request_counts().into_iter().collect();
        use Operation::{Connect, Create, CreateParents, Delete, List};
        assert_eq!(counts, [(Connect, 1), (CreateParents, 1), (Create, 2), (List, 2)]);
        server.reset_requests();
        let created = create().await;
        a.delete(&path, &Target::Node(created.node), None).await.unwrap();
        let counts: Vec<_> = server.request_counts().into_iter().collect();
        assert_eq!(counts, [(Create, 1), (List, 1), (Delete, 1)]);
        assert_eq!(began.elapsed(), Duration::ZERO, "a missing parent costs requests, not time");
    })
    .await;
}
