//! Jobs that run once per tick: the suite's group on each store, and loops over months on clocks that step.

mod clocks;

mod mem {
    use zlock_testkit::mem::MemStore;

    async fn store() -> Option<MemStore> {
        Some(MemStore::distant())
    }

    zlock_suite::recipe_suite!(paused, store(), [jobs]);
}

mod zk {
    use zlock_testkit::zk::ZkStore;

    zlock_suite::recipe_suite!(real, ZkStore::shared(), [jobs]);
}

#[cfg(feature = "etcd")]
mod etcd {
    use zlock_testkit::etcd::EtcdStore;

    zlock_suite::recipe_suite!(real, EtcdStore::shared(), [jobs]);
}

#[cfg(feature = "postgres")]
mod postgres {
    use zlock_testkit::postgres::PostgresStore;

    zlock_suite::recipe_suite!(real, PostgresStore::shared(), [jobs]);
}
