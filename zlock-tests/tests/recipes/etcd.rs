//! The recipe suite on a real etcd.

use zlock_recipes::{Election, InterProcessMutex, WriteLock};
use zlock_suite::{HandedOn, Occupied, OnePermit, Pair};
use zlock_testkit::etcd::EtcdStore;

/// On every lock path, 4 of 5 permits are already taken.
async fn occupied() -> Option<Occupied<EtcdStore>> {
    Some(Occupied::new(EtcdStore::shared().await?, 4, 5).await)
}

mod mutex {
    use super::*;
    // A separate server, so that watches can be counted.
    zlock_suite::mutual_suite!(real, EtcdStore::alone(), InterProcessMutex, [mutual]);
    zlock_suite::mutual_suite!(
        real,
        EtcdStore::shared(),
        InterProcessMutex,
        [alone, reentry, safety, strict, faults, links, sweep, revocation, shutdown]
    );
    zlock_suite::mutual_suite!(real, EtcdStore::impatient(), InterProcessMutex, [outlast]);
}

// All groups of these locks run on mem. Here, only those that depend on changing labels.

mod handed_on {
    use super::*;
    zlock_suite::mutual_suite!(real, EtcdStore::shared(), HandedOn, [mutual, safety, faults]);
    zlock_suite::mutual_suite!(real, EtcdStore::impatient(), HandedOn, [outlast]);
}

mod write_lock {
    use super::*;
    zlock_suite::mutual_suite!(real, EtcdStore::shared(), WriteLock, [reentry, safety, strict]);
}

mod semaphore_of_one {
    use super::*;
    zlock_suite::mutual_suite!(real, EtcdStore::shared(), OnePermit<1>, [mutual, strict, faults]);
}

mod semaphore_of_five {
    use super::*;
    zlock_suite::mutual_suite!(real, occupied(), OnePermit<5>, [safety, strict]);
}

mod multi_lock_of_two {
    use super::*;
    zlock_suite::mutual_suite!(real, EtcdStore::shared(), Pair, [faults]);
}

mod candidate {
    use super::*;
    zlock_suite::mutual_suite!(real, EtcdStore::shared(), Election, [safety, faults, sweep]);
}

zlock_suite::recipe_suite!(
    real,
    EtcdStore::shared(),
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
        handed_over,
        values,
        barriers,
        shared_max,
        slots,
        election,
        members
    ]
);

/// Through the blocking API.
mod through_threads {
    use super::*;
    zlock_suite::thread_suite!(real, EtcdStore::shared(), InterProcessMutex);
}
