//! The recipe suite on the engine for stores without sessions, with its in-memory adapter, in paused time.

use zlock::{Election, InterProcessMutex, WriteLock};
use zlock_ledger::mem::Settings;
use zlock_suite::{HandedOn, Occupied, OnePermit, Pair};
use zlock_testkit::ledger::LedgerStore;

async fn store() -> Option<LedgerStore> {
    Some(LedgerStore::new(Settings::default()))
}

/// Operations take at most a second.
async fn impatient() -> Option<LedgerStore> {
    Some(LedgerStore::impatient())
}

/// On every lock path, 4 of 5 permits are already taken.
async fn occupied() -> Option<Occupied<LedgerStore>> {
    Some(Occupied::new(LedgerStore::new(Settings::default()), 4, 5).await)
}

mod mutex {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), InterProcessMutex, except[outlast]);
    zlock_suite::mutual_suite!(paused, impatient(), InterProcessMutex, [outlast]);
}

mod write_lock {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), WriteLock, except[outlast]);
    zlock_suite::mutual_suite!(paused, impatient(), WriteLock, [outlast]);
}

mod semaphore_of_one {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), OnePermit<1>, except [outlast, reentry]);
    zlock_suite::mutual_suite!(paused, impatient(), OnePermit<1>, [outlast]);
}

mod multi_lock_of_two {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), Pair, except[outlast]);
    zlock_suite::mutual_suite!(paused, impatient(), Pair, [outlast]);
}

mod handed_on {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), HandedOn, except [outlast, strict]);
    zlock_suite::mutual_suite!(paused, impatient(), HandedOn, [outlast]);
}

mod semaphore_of_five {
    use super::*;
    zlock_suite::mutual_suite!(paused, occupied(), OnePermit<5>, except [alone, outlast, reentry, revocation, shutdown]);
}

mod candidate {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), Election, except [outlast, revocation]);
    zlock_suite::mutual_suite!(paused, impatient(), Election, [outlast]);
}

// The jobs have a program of their own.
zlock_suite::recipe_suite!(paused, store(), except [jobs, names]);

/// Through the blocking API, in real time: the waiting is done by threads, and a paused clock does not wait for them.
mod through_threads {
    use super::*;

    mod mutex {
        use super::*;
        zlock_suite::thread_suite!(real, store(), InterProcessMutex);
    }

    mod write_lock {
        use super::*;
        zlock_suite::thread_suite!(real, store(), WriteLock);
    }

    mod multi_lock_of_two {
        use super::*;
        zlock_suite::thread_suite!(real, store(), Pair);
    }
}
