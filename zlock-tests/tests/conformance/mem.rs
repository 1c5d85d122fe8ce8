//! In paused time.

use zlock_testkit::mem::MemStore;

async fn store() -> Option<MemStore> {
    Some(MemStore::default())
}

/// A store where the sequence numbers of each parent wrap at its third child.
async fn wrapping_store() -> Option<MemStore> {
    let store = store().await?;
    store.server.set_first_sequence(i32::MAX - 1);
    Some(store)
}

zlock_suite::conformance!(paused, store());

mod values {
    use super::*;
    zlock_suite::values_conformance!(paused, store());
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(paused, store());
}

mod wrapping {
    use super::*;
    zlock_suite::conformance!(paused, wrapping_store(), [contract, links]);
}
