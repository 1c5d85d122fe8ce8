//! The recipe suite on mem, in paused time, and what can be seen and harmed on mem alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod bounds;
mod faults;
mod requests;
mod runtime;
mod seed;
mod simulation;
#[path = "../../zlock-mem/tests/store/mod.rs"]
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
