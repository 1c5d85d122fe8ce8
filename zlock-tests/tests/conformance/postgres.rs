//! On a real server.

use zlock_testkit::postgres::PostgresStore;

zlock_suite::conformance!(real, PostgresStore::shared(), [contract, links]);

mod values {
    use super::*;
    zlock_suite::values_conformance!(real, PostgresStore::shared(), [contract, links]);
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(real, PostgresStore::shared(), [contract, links]);
}
