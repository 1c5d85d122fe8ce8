//! The recipe suite on a real server: the same groups of cases on each store.

/// Generates the tests on a store. `$watched` creates one whose watches can be counted.
macro_rules! suites {
    ($Store:ident, $watched:ident, except [$($except:ident),*]) => {
        use zlock_recipes::{Election, InterProcessMutex, WriteLock};
        use zlock_suite::{HandedOn, Occupied, OnePermit, Pair, mutual_suite};

        /// On every lock path, 4 of 5 permits are already taken.
        async fn occupied() -> Option<Occupied<$Store>> {
            Some(Occupied::new($Store::shared().await?, 4, 5).await)
        }

        mod mutex {
            use super::*;
            mutual_suite!(real, $Store::$watched(), InterProcessMutex, [mutual]);
            mutual_suite!(real, $Store::shared(), InterProcessMutex, except [mutual, outlast]);
            mutual_suite!(real, $Store::impatient(), InterProcessMutex, [outlast]);
        }

        // All groups of these locks run on mem. Here, only those that depend on changing labels.

        mod handed_on {
            use super::*;
            mutual_suite!(real, $Store::shared(), HandedOn, [mutual, safety, faults]);
            mutual_suite!(real, $Store::impatient(), HandedOn, [outlast]);
        }

        mod write_lock {
            use super::*;
            mutual_suite!(real, $Store::shared(), WriteLock, [reentry, safety, strict]);
        }

        mod semaphore_of_one {
            use super::*;
            mutual_suite!(real, $Store::shared(), OnePermit<1>, [mutual, strict, faults]);
        }

        mod semaphore_of_five {
            use super::*;
            mutual_suite!(real, occupied(), OnePermit<5>, [safety, strict]);
        }

        mod multi_lock_of_two {
            use super::*;
            mutual_suite!(real, $Store::shared(), Pair, [faults]);
        }

        mod candidate {
            use super::*;
            mutual_suite!(real, $Store::shared(), Election, [safety, faults, sweep]);
        }

        // The jobs have a program of their own.
        zlock_suite::recipe_suite!(real, $Store::shared(), except [jobs $(, $except)*]);

        /// Through the blocking API.
        mod through_threads {
            use super::*;
            zlock_suite::thread_suite!(real, $Store::shared(), InterProcessMutex);
        }
    };
}

pub(crate) use suites;
