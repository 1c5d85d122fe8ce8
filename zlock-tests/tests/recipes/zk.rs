//! The recipe suite on a real ZooKeeper.

mod server;

use zlock_testkit::zk::ZkStore;

server::suites!(ZkStore, shared, except []);
