//! The guide's pages, whose code runs as doc tests. Longer code is in the files beside this one, and
//! `cargo xtask docs --write` writes it into the pages.

/// Each page of the guide that has code of its own.
macro_rules! pages {
    ($($name:ident: $file:literal;)*) => {$(
        #[doc = include_str!(concat!("../src/", $file))]
        pub mod $name {}
    )*};
}

pages! {
    getting_started: "getting-started.md";
    choosing: "choosing.md";
    mutex: "mutex.md";
    read_write_lock: "read-write-lock.md";
    semaphore: "semaphore.md";
    multi_lock: "multi-lock.md";
    template: "template.md";
    hand_off: "hand-off.md";
    reentry: "reentry.md";
    revocation: "revocation.md";
    errors: "errors.md";
    paths: "paths.md";
    losing: "losing.md";
    election: "election.md";
    shared_value: "shared-value.md";
    counters: "counters.md";
    barriers: "barriers.md";
    slots: "slots.md";
    members: "members.md";
    jobs: "jobs.md";
    mem: "mem.md";
    zookeeper: "zookeeper.md";
    etcd: "etcd.md";
    promises: "promises.md";
    fencing: "fencing.md";
    configuration: "configuration.md";
    blocking: "blocking.md";
    testing: "testing.md";
    operating: "operating.md";
    shutdown: "shutdown.md";
    metrics: "metrics.md";
    scale: "scale.md";
    from_curator: "curator.md";
    from_kazoo: "kazoo.md";
    from_go: "go.md";
    from_redis: "redis.md";
    writing_a_backend: "backend.md";
}
