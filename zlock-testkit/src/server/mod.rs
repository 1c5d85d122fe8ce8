//! Real servers.

mod daemon;
pub(crate) mod dns;
mod ensemble;
pub(crate) mod etcd;
mod four_letter;
pub(crate) mod mariadb;
pub(crate) mod postgres;
mod programs;
mod room;
mod snapshot;
mod tls;
mod zk_session;
pub(crate) mod zookeeper;

pub use self::daemon::Daemon;
pub use self::dns::Dns;
pub use self::ensemble::Ensemble;
pub use self::etcd::{Etcd, EtcdCluster, Metrics, etcdctl};
pub use self::mariadb::MariaDb;
pub use self::postgres::{PgBouncer, PostgresBuilder, PostgresServer};
pub(crate) use self::programs::Programs;
pub use self::tls::Tls;
pub use self::zk_session::end_zookeeper_session;
pub use self::zookeeper::{ZooKeeper, ZooKeeperBuilder};
