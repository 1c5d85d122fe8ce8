//! The recipe suite on a real ZooKeeper.

use zlock::{Election, InterProcessMutex, WriteLock};
use zlock_suite::{HandedOn, Occupied, OnePermit, Pair};
use zlock_testkit::zk::ZkStore;

mod mutex {
    use super::*;
    zlock_suite::mutual_suite!(
        real,
        ZkStore::shared(),
        InterProcessMutex,
        [mutual, alone, reentry, safety, strict, faults, links, sweep, revocation, shutdown]
    );
    zlock_suite::mutual_suite!(real, ZkStore::impatient(), InterProcessMutex, [outlast]);
}

/// On every lock path, 4 of 5 permits are already taken.
async fn occupied() -> Option<Occupied<ZkStore>> {
    Some(Occupied::new(ZkStore::shared().await?, 4, 5).await)
}

// All groups of these locks run on mem. Here, only those that depend on changing labels.

mod handed_on {
    use super::*;
    zlock_suite::mutual_suite!(real, ZkStore::shared(), HandedOn, [mutual, safety, faults]);
    zlock_suite::mutual_suite!(real, ZkStore::impatient(), HandedOn, [outlast]);
}

mod write_lock {
    use super::*;
    zlock_suite::mutual_suite!(real, ZkStore::shared(), WriteLock, [reentry, safety, strict]);
}

mod semaphore_of_one {
    use super::*;
    zlock_suite::mutual_suite!(real, ZkStore::shared(), OnePermit<1>, [mutual, strict, faults]);
}

mod semaphore_of_five {
    use super::*;
    zlock_suite::mutual_suite!(real, occupied(), OnePermit<5>, [safety, strict]);
}

mod multi_lock_of_two {
    use super::*;
    zlock_suite::mutual_suite!(real, ZkStore::shared(), Pair, [faults]);
}

mod candidate {
    use super::*;
    zlock_suite::mutual_suite!(real, ZkStore::shared(), Election, [safety, faults, sweep]);
}

zlock_suite::recipe_suite!(
    real,
    ZkStore::shared(),
    [
        template,
        kinds,
        guard,
        participants,
        revocation,
        multi,
        cost,
        input,
        names,
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
    zlock_suite::thread_suite!(real, ZkStore::shared(), InterProcessMutex);
}
