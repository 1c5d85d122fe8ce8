//! The recipe suite on a real etcd.

mod common;
mod store;

use store::store_alone;
use zlock_recipes::InterProcessMutex;

mod mutex {
    use super::*;
    zlock_recipes::mutual_suite!(
        real,
        store_alone(),
        InterProcessMutex,
        [mutual, safety, faults, links, sweep]
    );
}

zlock_recipes::recipe_suite!(real, store_alone(), [template, guard, cost, input]);
