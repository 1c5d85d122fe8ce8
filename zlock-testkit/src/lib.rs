//! Real servers, broken links and child processes for zlock's own tests. Not published.
//!
//! - [`ZooKeeper`], [`Ensemble`], [`Etcd`] and [`EtcdCluster`] are real servers on free loopback ports. They never outlive the
//!   test process, however it ends. Their programs are Debian's, or those in the folder `ZLOCK_SERVERS_FOLDER`
//!   (`cargo xtask test --newest-servers`).
//! - [`Dns`] is a real DNS server.
//! - [`FaultProxy`] sits between a client and a server, and breaks the link in every way that a network can.
//! - [`Process`] is a child process that a test can kill or freeze.
//! - [`Journal`] is the evidence that contenders in several processes leave.
//! - [`limit`] ends a test that hangs, and [`until`] waits for a condition.
//! - The modules `mem`, `zk` and `etcd`, each behind a feature, have the stores for the suites, and what tests of one store share.
//! - [`zookeeper_or_skip`], [`etcd_or_skip`], [`have_zookeeper`], [`have_etcd`], [`have_dns`], [`have_promtool`], [`have_strace`] and [`have`] follow
//!   `ZLOCK_TEST_SERVERS`: a missing server is never a silent pass.
//!
//! Failures fail the test, so most calls panic instead of returning an error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "used only by tests")]

#[cfg(feature = "stores")]
mod backends;
#[cfg(feature = "etcd")]
pub mod etcd;
mod fault;
mod journal;
mod limit;
#[cfg(feature = "mem")]
pub mod mem;
mod notice;
mod policy;
mod port;
mod process;
mod server;
mod until;
#[cfg(feature = "zk")]
pub mod zk;

pub use fault::{Cut, FaultProxy, Flow, Lose, Staged, zk_op, zookeeper_request};
pub use journal::{Events, Journal};
pub use limit::{DEFAULT_LIMIT, limit, limit_to};
pub use policy::{
    SKIP_MARK, etcd_or_skip, have, have_dns, have_etcd, have_promtool, have_strace, have_zookeeper,
    zookeeper_or_skip,
};
pub use port::Port;
pub use process::{Process, first_look_after_a_pause};
pub use server::{
    Daemon, Dns, Ensemble, Etcd, EtcdCluster, Metrics, Tls, ZooKeeper, ZooKeeperBuilder,
    end_zookeeper_session, etcdctl,
};
pub use until::{ready, report, until};
