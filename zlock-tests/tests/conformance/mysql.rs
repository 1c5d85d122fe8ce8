//! On a real server.

use zlock_testkit::mysql::MysqlStore;

zlock_suite::conformance!(real, MysqlStore::shared(), except[numbers]);

mod values {
    use super::*;
    zlock_suite::values_conformance!(real, MysqlStore::shared());
}

mod groups {
    use super::*;
    zlock_suite::groups_conformance!(real, MysqlStore::shared());
}
