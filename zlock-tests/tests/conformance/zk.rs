//! On a real server.

use zlock_testkit::zk::ZkStore;

zlock_suite::conformance!(real, ZkStore::shared(), [contract, numbers, links]);
zlock_suite::conformance!(real, ZkStore::alone(), [watches]);
