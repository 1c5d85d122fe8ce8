//! The conformance suite on a real etcd.

mod common;
mod store;

use store::{store, store_alone};

zlock_suite::conformance!(real, store(), [contract, links]);
zlock_suite::conformance!(real, store_alone(), [watches]);
