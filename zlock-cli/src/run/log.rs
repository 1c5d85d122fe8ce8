//! Messages of the keeper, written by a thread of their own.
//!
//! Standard error may be a pipe that nobody reads, or a terminal that was stopped. Nothing that keeps the lock safe may
//! wait for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::exit::say;

/// How long the end waits for messages to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes to standard error without waiting for it.
#[derive(Debug)]
pub(super) struct Log {
    is_verbose: bool,
    writer: Option<(Sender<String>, Receiver<()>)>,
}

impl Log {
    pub(super) fn new(is_verbose: bool) -> Self {
        Log { is_verbose, writer: None }
    }

    /// Says something.
    pub(super) fn say(&mut self, message: impl Into<String>) {
        let (messages, _) = self.writer.get_or_insert_with(|| {
            let (messages, written) = channel::<String>();
            let (done, end) = channel();
            // Without a thread nothing is said. That must not end anything.
            let _ = thread::Builder::new().spawn(move || {
                written.iter().for_each(|message| say(&message));
                drop(done);
            });
            (messages, end)
        });
        let _ = messages.send(message.into());
    }

    /// Says something if the user wants to know more.
    pub(super) fn tell(&mut self, message: impl FnOnce() -> String) {
        if self.is_verbose {
            self.say(message());
        }
    }

    /// Waits for all messages to be written, but not for long.
    pub(super) fn finish(&mut self) {
        if let Some((messages, end)) = self.writer.take() {
            drop(messages);
            // Nothing is ever sent: the channel closes.
            let _: Result<(), RecvTimeoutError> = end.recv_timeout(PATIENCE);
        }
    }
}
