//! The recipe suite on mem, in paused time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

#[path = "../zlock-mem/tests/store/mod.rs"]
mod store;

use zlock::InterProcessMutex;

use self::store::MemStore;

async fn store() -> Option<MemStore> {
    Some(MemStore::default())
}

mod mutex {
    use super::*;
    zlock_recipes::mutual_suite!(paused, store(), InterProcessMutex, [mutual, safety, faults, links, sweep]);
}

zlock_recipes::recipe_suite!(paused, store(), [template, guard, cost, input]);
