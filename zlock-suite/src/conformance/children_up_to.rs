//! `children`, up to a node.

use zlock_core::{Existence, Label, Target};

use crate::Case;

/// The node directly before `up_to` is included.
pub async fn has_the_node_right_before(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let (nested, mut below) = (case.path("lock/nested"), None);
    let mut nodes = Vec::new();
    for (n, label) in
        [Label::Read, Label::Lock, Label::Write, Label::Read, Label::Write].into_iter().enumerate()
    {
        let backend = if n % 2 == 0 { &a } else { &b };
        nodes.push(case.create(backend, &path, label).await.node);
        if n == 2 {
            // Its name may sort between two places, but it is not a place.
            below = Some(case.create(&a, &nested, Label::Lock).await.node);
        }
    }
    for (place, node) in nodes.iter().enumerate().filter(|(_, node)| node.label != Label::Read) {
        let backend = if node.session == nodes[0].session { &a } else { &b };
        let queue = backend.children(&path, Some(node)).await.unwrap();
        let at = queue.position(&node.id).expect("the node itself");
        let before = at.checked_sub(1).map(|before| &queue[before].id);
        assert_eq!(before, place.checked_sub(1).map(|before| &nodes[before].id));
    }
    a.delete(&nested, &Target::Node(below.expect("a node")), None).await.unwrap();
    case.store.remove_parent(&nested).await;
}

/// Up to a node, no node is included that this backend knows to be deleted.
pub async fn has_no_node_known_to_be_gone(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for _ in 0..10 {
        let first = case.create(&a, &path, Label::Lock).await;
        let second = case.create(&b, &path, Label::Lock).await;
        let Existence::Watching(watch) = b.exists_with_watch(&path, &first.node).await.unwrap() else {
            panic!("not watching {:?}", first.node);
        };
        let delete = async { a.delete(&path, &Target::Node(first.node.clone()), None).await.unwrap() };
        let look = async {
            watch.await;
            b.children(&path, Some(&second.node)).await.unwrap()
        };
        let (_, queue) = tokio::join!(delete, look);
        assert_eq!((queue.len(), queue.position(&second.node.id)), (1, Some(0)));
        b.delete(&path, &Target::Node(second.node), None).await.unwrap();
    }
}

/// The node `up_to` is missing only if it was deleted.
pub async fn is_missing_only_if_gone(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let [first, second] =
        [case.create(&a, &path, Label::Lock).await, case.create(&a, &path, Label::Lock).await];
    let before = a.children(&path, Some(&second.node)).await.unwrap();
    assert_eq!((before.position(&first.node.id), before.position(&second.node.id)), (Some(0), Some(1)));
    b.delete(&path, &Target::Node(second.node.clone()), None).await.unwrap();
    case.until("its own backend sees it, too", async || {
        a.children(&path, Some(&second.node)).await.unwrap().find(&second.node.id).is_none()
    })
    .await;
    assert!(a.children(&path, Some(&first.node)).await.unwrap().find(&first.node.id).is_some());
}
