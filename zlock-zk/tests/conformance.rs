//! The conformance suite on a real ZooKeeper.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use self::common::zk_store::ZkStore;

zlock_suite::conformance!(real, ZkStore::shared(), [contract, numbers, links]);
zlock_suite::conformance!(real, ZkStore::alone(), [watches]);
