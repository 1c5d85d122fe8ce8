//! `children`.

use zlock_core::{Existence, Label, Target};

use crate::Case;

/// A missing parent is returned as an empty queue.
pub async fn missing_parent_is_an_empty_queue(case: &Case<'_>) {
    let a = case.connect().await;
    for path in ["never", "never/made"] {
        assert!(a.children(&case.path(path)).await.unwrap().is_empty());
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
    let queue = a.children(&path).await.unwrap();
    let names: Vec<_> = queue.iter().map(|n| &n.name).collect();
    assert_eq!(names, [&created.node.name]);
    a.delete(&nested, &Target::Node(below.node)).await.unwrap();
    case.store.remove_parent(&nested).await;
}

/// The queue contains every node that this backend knew before the call, and none that it knew to be deleted.
pub async fn contains_what_the_backend_knew(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for _ in 0..10 {
        let first = case.create(&a, &path, Label::Lock).await;
        let second = case.create(&b, &path, Label::Lock).await;
        assert!(case.queue(&second).find(&first.node.id).is_some());
        let queue = b.children(&path).await.unwrap();
        assert_eq!((queue.position(&first.node.id), queue.position(&second.node.id)), (Some(0), Some(1)));

        let Existence::Watching(watch) = b.exists_with_watch(&path, &queue[0]).await.unwrap() else {
            panic!("not watching {:?}", queue[0]);
        };
        let delete = async { a.delete(&path, &Target::Node(first.node.clone())).await.unwrap() };
        let look = async {
            watch.await;
            b.children(&path).await.unwrap()
        };
        let (_, queue) = tokio::join!(delete, look);
        assert_eq!(queue.find(&first.node.id), None);
        b.delete(&path, &Target::Node(second.node)).await.unwrap();
        assert!(b.children(&path).await.unwrap().is_empty());
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
        let queue = a.children(&path).await.unwrap();
        assert_eq!(queue.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), order);
    }
}
