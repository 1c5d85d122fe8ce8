//! `children`.

use zlock_core::{Consistency, Existence, Joined, Label, Target};

use crate::Case;

/// A missing parent is returned as an empty queue.
pub async fn missing_parent_is_an_empty_queue(case: &Case<'_>) {
    let a = case.connect().await;
    for path in ["never", "never/made"] {
        assert!(a.children(&case.path(path), None).await.unwrap().is_empty());
    }
}

/// Foreign and nested children are left out.
pub async fn foreign_and_nested_children_are_left_out(case: &Case<'_>) {
    let (a, path, nested) = (case.connect().await, case.path("lock"), case.path("lock/nested"));
    let below = case.create(&a, &nested, Label::Lock).await;
    let created = case.create(&a, &path, Label::Lock).await;
    for name in ["db", "lock-", "lock-12", "mylock-0000000001"] {
        case.put(&path, name).await;
    }
    let queue = a.children(&path, None).await.unwrap();
    let names: Vec<_> = queue.iter().map(|n| &n.name).collect();
    assert_eq!(names, [&created.node.name]);
    a.delete(&nested, &Target::Node(below.node), None).await.unwrap();
    case.store.remove_parent(&nested).await;
}

/// Values and members are left out, whatever their names and data are.
pub async fn values_and_members_are_left_out(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for name in ["0123abcd-4567-89ab-cdef-0123456789ab", "694d7a3c2f1b5e05", "w7"] {
        let joined = a.join(&path.join(name).unwrap(), b"zlock1 lock\n", false).await.unwrap();
        assert!(matches!(joined, Joined::Joined(_)), "{joined:?}");
    }
    for name in ["0123abcd-4567-89ab-cdef-0123456789ac", "694d7a3c2f1b5e06", "mode"] {
        let value = path.join(name).unwrap();
        case.put(&path, name).await;
        for data in [&b"zlock1 lock\n"[..], b""] {
            let version = a.value(&value, Consistency::Latest).await.unwrap().map(|value| value.version);
            a.write_value(&value, version, data, None).await.unwrap();
        }
    }
    let before = case.store.names(&path).await.len();
    let node = case.create(&b, &path, Label::Candidate).await.node;
    for backend in [&a, &b] {
        assert_eq!(backend.children(&path, None).await.unwrap().len(), 1);
        let (head, _watch) = backend.head_with_watch(&path).await.unwrap();
        assert_eq!(head.map(|head| head.node.name), Some(node.name.clone()));
        let (queue, _watch) = backend.children_with_watch(&path).await.unwrap();
        assert_eq!(queue.len(), 1);
    }
    let second = case.create(&a, &path, Label::Lock).await.node;
    let queue = a.children(&path, Some(&second)).await.unwrap();
    assert_eq!((queue.len(), queue.position(&second.id)), (2, Some(1)));
    b.delete(&path, &Target::Node(node), None).await.unwrap();
    a.delete(&path, &Target::Node(second), None).await.unwrap();
    assert_eq!(case.store.names(&path).await.len(), before);
}

/// The queue contains every node that this backend knew before the call, and none that it knew to be deleted.
pub async fn contains_what_the_backend_knew(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for _ in 0..10 {
        let first = case.create(&a, &path, Label::Lock).await;
        let second = case.create(&b, &path, Label::Lock).await;
        assert!(case.queue(&second).find(&first.node.id).is_some());
        let queue = b.children(&path, None).await.unwrap();
        assert_eq!((queue.position(&first.node.id), queue.position(&second.node.id)), (Some(0), Some(1)));

        let Existence::Watching(watch) = b.exists_with_watch(&path, &queue[0]).await.unwrap() else {
            panic!("not watching {:?}", queue[0]);
        };
        let delete = async { a.delete(&path, &Target::Node(first.node.clone()), None).await.unwrap() };
        let look = async {
            watch.await;
            b.children(&path, None).await.unwrap()
        };
        let (_, queue) = tokio::join!(delete, look);
        assert_eq!(queue.find(&first.node.id), None);
        b.delete(&path, &Target::Node(second.node), None).await.unwrap();
        assert!(b.children(&path, None).await.unwrap().is_empty());
    }
}

/// Cases that need numbers in the names of nodes.
pub mod numbers {
    use super::*;

    /// The order is correct across the wrap of a store's numbers.
    pub async fn order_across_the_wrap(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let order = ["lock-2147483646", "lock-2147483647", "lock--2147483648", "lock--2147483647"];
        for i in [2, 0, 3, 1] {
            case.put(&path, order[i]).await;
        }
        let queue = a.children(&path, None).await.unwrap();
        assert_eq!(queue.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), order);
    }
}
