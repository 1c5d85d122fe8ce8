//! `create_ephemeral_sequential`.

use crate::conformance::Case;
use crate::label::Label;

/// The node is at the end of the queue, behind every node that any client had seen before.
pub async fn at_the_end_of_the_queue(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let mut made = Vec::new();
    for backend in [&a, &b, &a, &a, &b] {
        let seen = a.children(&path).await.unwrap();
        let created = case.create(backend, &path, Label::Lock).await;
        let place = created.queue.position(&created.node.token).unwrap();
        for node in seen.iter() {
            assert!(created.queue.position(&node.token).unwrap() < place, "{node:?} in {:?}", created.queue);
        }
        made.push(created.node.token);
    }
    let queue = b.children(&path).await.unwrap();
    assert_eq!(queue.iter().map(|n| n.token.clone()).collect::<Vec<_>>(), made);
}

/// The returned queue has the node.
pub async fn returned_queue_has_the_node(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    for label in
        [Label::Lock, Label::Read, Label::Write, Label::Permits { weight: 2, max: 5, granted: false }]
    {
        let created = case.create(&a, &path, label).await;
        let listed = created.queue.find(&created.node.token).unwrap();
        assert_eq!((&listed.name, listed.label), (&created.node.name, label));
        assert_eq!(created.node.label, label);
    }
}
