//! The recipe suite on a real MariaDB.

mod server;

use zlock_testkit::mysql::MysqlStore;

server::suites!(MysqlStore, shared, except[names]);
