//! `data`.

use tokio::time::sleep;
use zlock_core::{Label, Needs, Target};

use crate::Case;
use crate::case::MOMENT;

/// The data is that of the create or of the last write, byte for byte.
pub async fn is_what_was_given(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let every_byte: Vec<u8> = (0..=255).collect();
    for data in [&b""[..], b"host-1/42", &every_byte, &[7; 4096]] {
        let created = a
            .create_ephemeral_sequential(&path, Label::Write, &case.node_id(), data, Needs::Queue)
            .await
            .unwrap()
            .node;
        for backend in [&a, &b] {
            assert_eq!(case.data(backend, &path, &created).await.as_deref(), Some(data));
        }
        let listed = b.children(&path, None).await.unwrap().find(&created.id).cloned().unwrap();
        assert_eq!(case.data(&b, &path, &listed).await.as_deref(), Some(data));
        let relabelled = a.relabel(&path, &created, Label::Read).await.unwrap();
        for node in [&relabelled, &created] {
            assert_eq!(case.data(&b, &path, node).await.as_deref(), Some(data));
        }
        a.delete(&path, &Target::Node(relabelled), None).await.unwrap();
        assert_eq!(case.data(&b, &path, &created).await, None);
    }
    case.store.remove_parent(&path).await;
    let gone = case.create(&a, &path, Label::Lock).await.node;
    assert_eq!(case.data(&b, &case.path("never/made"), &gone).await, None);
}

/// Every client gets the session that owns the node.
pub async fn owner_is_returned(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let owner = a.session_events().current().id;
    let node = case.create(&a, &path, Label::Write).await.node;
    let relabelled = a.relabel(&path, &node, Label::Read).await.unwrap();
    for backend in [&a, &b] {
        for node in [&node, &relabelled] {
            assert_eq!(backend.data(&path, node).await.unwrap().unwrap().session, Some(owner));
        }
        b.write_data(&path, &node, None, b"written by another").await.unwrap();
    }
}

/// If the store reports the time of the create, writing the data does not change it.
pub async fn time_of_the_create_stays(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let node = case.create(&a, &path, Label::Lock).await.node;
    let created = a.data(&path, &node).await.unwrap().unwrap().created;
    sleep(MOMENT / 10).await;
    b.write_data(&path, &node, None, b"new").await.unwrap();
    for backend in [&a, &b] {
        assert_eq!(backend.data(&path, &node).await.unwrap().unwrap().created, created);
    }
    let later = case.create(&a, &path, Label::Lock).await.node;
    assert!(created <= a.data(&path, &later).await.unwrap().unwrap().created);
}
