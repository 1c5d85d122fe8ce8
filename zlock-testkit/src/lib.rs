//! Real servers, broken links and child processes for zlock's own tests. Not published.
//!
//! - [`ZooKeeper`], [`Ensemble`], [`Etcd`], [`EtcdCluster`], [`PostgresServer`] and [`PgBouncer`] are real servers on free
//!   loopback ports. They never outlive the test process, however it ends. Their programs are Debian's, or those in the folder `ZLOCK_SERVERS_FOLDER`
//!   (`cargo xtask matrix`).
//! - [`Dns`] is a real DNS server.
//! - [`FaultProxy`], from `zlock-suite`, sits between a client and a server, and breaks the link in every way that a network can.
//! - [`Process`] is a child process that a test can kill or freeze.
//! - [`Journal`] is the evidence that contenders in several processes leave.
//! - [`limit`] ends a test that hangs, [`limit_if`] also skips one whose server is missing, and [`until`] waits for a condition.
//! - The modules `mem`, `ledger`, `zk`, `etcd` and `postgres`, each behind a feature, have the stores for the suites, and what tests of one store share.
//! - [`have`], [`have_zookeeper`] and the others like it, and [`zookeeper_or_skip`] and the others like it follow
//!   `ZLOCK_TEST_SERVERS`: a missing server is never a silent pass.
//!
//! Failures fail the test, so most calls panic instead of returning an error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "used only by tests")]

#[cfg(feature = "stores")]
mod backends;
#[cfg(feature = "etcd")]
pub mod etcd;
mod journal;
#[cfg(feature = "ledger")]
pub mod ledger;
mod limit;
#[cfg(feature = "mem")]
pub mod mem;
#[cfg(feature = "mysql")]
pub mod mysql;
mod notice;
mod policy;
#[cfg(feature = "postgres")]
pub mod postgres;
mod process;
#[cfg(any(feature = "zk", feature = "etcd", feature = "mysql", feature = "postgres"))]
mod proxied;
mod server;
mod until;
#[cfg(feature = "zk")]
pub mod zk;

pub use journal::{Events, Journal};
pub use limit::{DEFAULT_LIMIT, limit, limit_if, limit_to, limit_to_if};
pub use policy::{
    SKIP_MARK, etcd_or_skip, have, have_dns, have_etcd, have_faketime, have_mariadb, have_pgbouncer,
    have_postgres, have_promtool, have_strace, have_zookeeper, mariadb_or_skip, postgres_or_skip,
    zookeeper_or_skip,
};
pub use process::{Process, first_look_after_a_pause};
pub use server::{
    Daemon, Dns, Ensemble, Etcd, EtcdCluster, MariaDb, Metrics, PgBouncer, PostgresBuilder, PostgresServer,
    Tls, ZooKeeper, ZooKeeperBuilder, end_zookeeper_session, etcdctl,
};
pub use until::{ready, report, until};
pub use zlock_suite::proxy::{Cut, FaultProxy, Flow, Lose, Port, Staged, zk_op, zookeeper_request};
