//! On a real server.

use zlock_testkit::etcd::EtcdStore;

zlock_suite::conformance!(real, EtcdStore::shared(), except [numbers, watches]);
zlock_suite::conformance!(real, EtcdStore::alone(), [watches]);

mod values {
    use super::*;
    zlock_suite::values_conformance!(real, EtcdStore::shared(), except[watches]);
    zlock_suite::values_conformance!(real, EtcdStore::alone(), [watches]);
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(real, EtcdStore::shared(), except[watches]);
    zlock_suite::groups_conformance!(real, EtcdStore::alone(), [watches]);
}
