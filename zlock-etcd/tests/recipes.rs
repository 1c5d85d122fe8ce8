//! The recipe suite on a real etcd.
//!
//! It is here and not at the workspace's root, like ZooKeeper's, since the tests there must build without protoc.

mod common;
mod store;

use store::{EtcdStore, impatient_store, store, store_alone};
use zlock_recipes::{InterProcessMutex, WriteLock};
use zlock_suite::{HandedOn, Occupied, OnePermit, Pair};

/// On every lock path, 4 of 5 permits are already taken.
async fn occupied() -> Option<Occupied<EtcdStore>> {
    Some(Occupied::new(store().await?, 4, 5).await)
}

mod mutex {
    use super::*;
    // A separate server, so that watches can be counted.
    zlock_suite::mutual_suite!(real, store_alone(), InterProcessMutex, [mutual]);
    zlock_suite::mutual_suite!(
        real,
        store(),
        InterProcessMutex,
        [alone, reentry, safety, strict, faults, links, sweep, revocation, shutdown]
    );
    zlock_suite::mutual_suite!(real, impatient_store(), InterProcessMutex, [outlast]);
}

// All groups of these locks run on mem. Here, only those that depend on changing labels.

mod handed_on {
    use super::*;
    zlock_suite::mutual_suite!(real, store(), HandedOn, [mutual, safety, faults]);
    zlock_suite::mutual_suite!(real, impatient_store(), HandedOn, [outlast]);
}

mod write_lock {
    use super::*;
    zlock_suite::mutual_suite!(real, store(), WriteLock, [reentry, safety, strict]);
}

mod semaphore_of_one {
    use super::*;
    zlock_suite::mutual_suite!(real, store(), OnePermit<1>, [mutual, strict, faults]);
}

mod semaphore_of_five {
    use super::*;
    zlock_suite::mutual_suite!(real, occupied(), OnePermit<5>, [safety, strict]);
}

mod multi_lock_of_two {
    use super::*;
    zlock_suite::mutual_suite!(real, store(), Pair, [faults]);
}

zlock_suite::recipe_suite!(
    real,
    store(),
    [
        template,
        kinds,
        guard,
        participants,
        revocation,
        multi,
        cost,
        input,
        read_write,
        downgrade,
        semaphore,
        promotion,
        succession,
        handoff,
        handed_over
    ]
);

/// Through the blocking API.
mod through_threads {
    use super::*;
    zlock_suite::thread_suite!(real, store(), InterProcessMutex);
}
