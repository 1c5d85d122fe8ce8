//! On a real server.

use zlock_testkit::zk::ZkStore;

zlock_suite::conformance!(real, ZkStore::shared(), except[watches]);
zlock_suite::conformance!(real, ZkStore::alone(), [watches]);

mod values {
    use super::*;
    zlock_suite::values_conformance!(real, ZkStore::shared(), except[watches]);
    zlock_suite::values_conformance!(real, ZkStore::alone(), [watches]);
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(real, ZkStore::shared(), except[watches]);
    zlock_suite::groups_conformance!(real, ZkStore::alone(), [watches]);
}
