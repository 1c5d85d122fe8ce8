//! The recipe suite on a real etcd.

mod server;

use zlock_testkit::etcd::EtcdStore;

server::suites!(EtcdStore, alone, except[names]);
