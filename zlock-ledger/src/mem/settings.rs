//! The settings of a store.

use std::time::Duration;

use zlock_core::Class;

use crate::Limits;

/// The settings of a [`MemStore`](super::MemStore).
///
/// # Examples
/// ```
/// use zlock_core::Class;
/// use zlock_ledger::mem::{MemStore, Settings};
///
/// let store = MemStore::new(Settings { class: Class::OneServer, ..Settings::default() });
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a change of incarnation may lose. Defaults to [`Class::Lossy`]. [`Class::Auto`] is [`Class::OneServer`] until a failover.
    pub class: Class,
    /// The longest timeout of a session that owns something. Defaults to 30 seconds.
    pub longest: Duration,
    /// For how long a server that was replaced may go on. Quiet time is longer by it. Defaults to zero.
    pub overlap: Duration,
    /// Whether hints are sent. Without them, only a poll finds changes. Defaults to `true`.
    pub hints: bool,
    /// For how long a transaction on the patient lane waits before it is busy. Defaults to 200 milliseconds.
    pub patience: Duration,
    /// The most entries that one request to end sessions removes. Defaults to 1,000.
    pub removes: usize,
    /// The most by which a request, an answer or a hint is delayed at random. Defaults to zero.
    pub jitter: Duration,
    /// The seed of these delays. Defaults to 0.
    pub seed: u64,
    /// How many commits are kept so that a crash or a failover can undo them. Defaults to 1,000.
    pub log: usize,
    /// What requests may contain. Defaults to 64 transactions, 1 MiB, 3 connections, and a poll after 100 milliseconds to 1 second.
    ///
    /// A larger batch is [`Fault::Invalid`](crate::Fault::Invalid), and a further connection is
    /// [`Fault::Unexpected`](crate::Fault::Unexpected). The bytes are not counted.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            class: Class::Lossy,
            longest: Duration::from_secs(30),
            overlap: Duration::ZERO,
            hints: true,
            patience: Duration::from_millis(200),
            removes: 1000,
            jitter: Duration::ZERO,
            seed: 0,
            log: 1000,
            limits: Limits {
                batch: 64,
                bytes: 1 << 20,
                connections: 3,
                poll: (Duration::from_secs(1), Duration::from_millis(100)),
            },
        }
    }
}
