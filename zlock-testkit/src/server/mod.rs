//! Real servers.

mod ensemble;
mod four_letter;
mod tls;
mod zookeeper;

pub use self::ensemble::Ensemble;
pub use self::tls::Tls;
pub(crate) use self::zookeeper::missing;
pub use self::zookeeper::{ZooKeeper, ZooKeeperBuilder};
