//! Building blocks for backends.
//!
//! [`CoordinationBackend`](crate::CoordinationBackend) defines what a store must offer. This module contains what backends
//! share below that trait: consecutive sessions, and operations that retry within a limited time.
//!
//! - [`Sessions`] keeps the current session. Operations wait until it is connected, and run until it ends.
//! - [`Budget`] is the budget of one operation: it waits for a session, retries, and creates the error. [`repeat!`] is the
//!   loop of its attempts.
//! - [`Task`] is the backend's own task, which keeps the sessions alive. [`Task::connect`] spawns it with the session loop, to
//!   which a store supplies a [`SessionStore`]. [`Closing`] notifies a task with another loop when the backend is closed.
//! - [`Beats`] decides when heartbeats are due and what follows from them; [`keep_alive`] sends them.
//! - [`Attempts`] are the attempts at a new session: the pauses before them, and the time of each.
//! - [`Failure`] and [`Interrupted`] describe why a request got no usable response, and what follows from that.
//! - [`InFlight`] decides whether a request has to wait for those in flight, so that requests that wait can be sent together.
//! - [`FailureLog`] decides which failures of an outage are logged.
//! - [`write_value`] is the loop of the write of a value, to which a store supplies a [`ValueStore`]. [`Receipts`] are what these
//!   writes leave in the store, so that a lost response does no harm. A [`WriteReceipt`] does the same for other requests.
//! - [`OwnContents`] keeps the data that a relabel has to write again.
//! - [`Files`] reads files that may be on a disk that hangs.
//! - [`Options`] are the connection options that every remote store has, and [`builders!`] writes the methods that set them;
//!   [`Srv`] finds the servers in DNS, and [`Tls`] has the certificates.

mod attempts;
mod beats;
mod budget;
mod contents;
mod failure;
mod failure_log;
mod in_flight;
mod options;
mod receipts;
mod repeat;
mod session_loop;
mod sessions;
mod task;
mod value_write;

pub use attempts::Attempts;
pub use beats::{Beat, Beats, Unanswered, keep_alive};
pub use budget::Budget;
pub use contents::OwnContents;
pub use failure::{Failure, FailureClass, Interrupted};
pub use failure_log::FailureLog;
pub use in_flight::InFlight;
pub use options::files::Files;
pub use options::srv::Srv;
pub use options::tls::Tls;
pub use options::{Options, authority, check_duration};
pub use receipts::{Receipt, Receipts};
pub use session_loop::{Begun, Over, SessionStore, first_session};
pub use sessions::{SessionKey, Sessions};
pub use task::{Closing, Task};
pub use value_write::{Unknown, ValueStore, ValueWrite, WriteAttempts, WriteReceipt, settled, write_value};

pub use crate::nodes::node_id::is_uuid;
pub use crate::runtime_thread::run_on;
pub use crate::signal::sleep_until;
#[doc(inline)]
pub use crate::{__builders as builders, __repeat as repeat};
