//! The recipe suite on a real ZooKeeper.
#![cfg(feature = "zk")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../zlock-zk/tests/common/mod.rs"]
mod common;

use zlock::InterProcessMutex;

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

zlock_recipes::recipe_suite!(real, ZkStore::shared(), [template, guard, revocation, cost, input]);
