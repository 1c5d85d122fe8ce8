//! On a real server.

use zlock_testkit::postgres::PostgresStore;

zlock_suite::conformance!(real, PostgresStore::shared(), except[numbers]);

mod values {
    use super::*;
    zlock_suite::values_conformance!(real, PostgresStore::shared());
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(real, PostgresStore::shared());
}
