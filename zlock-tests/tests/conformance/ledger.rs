//! The engine for stores without sessions on its in-memory adapter, in paused time.

use zlock_ledger::mem::Settings;
use zlock_testkit::ledger::LedgerStore;

async fn store() -> Option<LedgerStore> {
    Some(LedgerStore::new(Settings::default()))
}

/// Without hints, only the poll finds changes.
async fn without_hints() -> Option<LedgerStore> {
    Some(LedgerStore::new(Settings { hints: false, ..Settings::default() }))
}

zlock_suite::conformance!(paused, store(), except[numbers]);

mod values {
    use super::*;
    zlock_suite::values_conformance!(paused, store());
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(paused, store());
}

mod polled {
    use super::*;
    zlock_suite::conformance!(paused, without_hints(), [contract, links]);
}
