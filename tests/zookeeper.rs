//! The recipe suite on a real ZooKeeper.
#![cfg(feature = "zk")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../zlock-zk/tests/common/mod.rs"]
mod common;

use zlock::{InterProcessMutex, WriteLock};
use zlock_recipes::suite::{Occupied, OnePermit};

use self::common::zk_store::ZkStore;

mod mutex {
    use super::*;
    zlock_recipes::mutual_suite!(
        real,
        ZkStore::shared(),
        InterProcessMutex,
        [mutual, alone, reentry, safety, faults, links, sweep, revocation]
    );
}

/// 4 of 5 permits are taken wherever somebody acquires.
async fn occupied() -> Option<Occupied<ZkStore>> {
    Some(Occupied::new(ZkStore::shared().await?, 4, 5).await)
}

// All groups of these locks run on mem. Here, what depends on labels that change.

mod write_lock {
    use super::*;
    zlock_recipes::mutual_suite!(real, ZkStore::shared(), WriteLock, [reentry, safety]);
}

mod semaphore_of_one {
    use super::*;
    zlock_recipes::mutual_suite!(real, ZkStore::shared(), OnePermit<1>, [mutual, faults]);
}

mod semaphore_of_five {
    use super::*;
    zlock_recipes::mutual_suite!(real, occupied(), OnePermit<5>, [safety]);
}

zlock_recipes::recipe_suite!(
    real,
    ZkStore::shared(),
    [template, guard, revocation, cost, input, read_write, downgrade, semaphore, promotion]
);
