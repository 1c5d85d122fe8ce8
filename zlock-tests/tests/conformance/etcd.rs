//! On a real server.

use zlock_testkit::etcd::EtcdStore;

zlock_suite::conformance!(real, EtcdStore::shared(), [contract, links]);
zlock_suite::conformance!(real, EtcdStore::alone(), [watches]);

mod values {
    use super::*;
    zlock_suite::values_conformance!(real, EtcdStore::shared(), [contract, links]);
    zlock_suite::values_conformance!(real, EtcdStore::alone(), [watches]);
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(real, EtcdStore::shared(), [contract, links]);
    zlock_suite::groups_conformance!(real, EtcdStore::alone(), [watches]);
}
