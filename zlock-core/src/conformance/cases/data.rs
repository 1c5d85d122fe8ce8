//! `data`.

use crate::backend::Target;
use crate::conformance::Case;
use crate::label::Label;

/// The data is what was given to the create or to the last write, byte for byte.
pub async fn is_what_was_given(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let every_byte: Vec<u8> = (0..=255).collect();
    for data in [&b""[..], b"host-1/42", &every_byte, &[7; 4096]] {
        let created =
            a.create_ephemeral_sequential(&path, Label::Write, &case.token(), data).await.unwrap().node;
        for backend in [&a, &b] {
            assert_eq!(backend.data(&path, &created).await.unwrap().as_deref(), Some(data));
        }
        let listed = b.children(&path).await.unwrap().find(&created.token).cloned().unwrap();
        assert_eq!(b.data(&path, &listed).await.unwrap().as_deref(), Some(data));
        let relabelled = a.relabel(&path, &created, Label::Read).await.unwrap();
        for node in [&relabelled, &created] {
            assert_eq!(b.data(&path, node).await.unwrap().as_deref(), Some(data));
        }
        a.delete(&path, &Target::Node(relabelled)).await.unwrap();
        assert_eq!(b.data(&path, &created).await.unwrap(), None);
    }
    case.store.remove_parent(&path).await;
    let gone = case.create(&a, &path, Label::Lock).await.node;
    assert_eq!(b.data(&case.path("never/made"), &gone).await.unwrap(), None);
}
