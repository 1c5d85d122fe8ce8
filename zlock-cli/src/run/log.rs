//! Messages on standard error, written by a separate thread.
//!
//! Standard error may be a pipe without a reader, or a stopped terminal. Code that keeps the lock safe must not wait for
//! it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::exit::say;

/// The time limit for writing the remaining messages at the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes to standard error without waiting for it.
#[derive(Debug)]
pub(super) struct Log {
    is_verbose: bool,
    writer: Option<(Sender<String>, Receiver<()>)>,
    /// The last message that no thread writes, because the system refused to start one.
    unwritten: Option<String>,
}

impl Log {
    pub(super) fn new(is_verbose: bool) -> Self {
        Log { is_verbose, writer: None, unwritten: None }
    }

    /// Writes a message.
    pub(super) fn say(&mut self, message: impl Into<String>) {
        let (messages, _) = self.writer.get_or_insert_with(|| {
            let (messages, written) = channel::<String>();
            let (done, end) = channel();
            // Without the thread, only the last message is written, at the end. That must not end the process.
            let _ = thread::Builder::new().spawn(move || {
                written.iter().for_each(|message| say(&message));
                drop(done);
            });
            (messages, end)
        });
        if let Err(unwritten) = messages.send(message.into()) {
            self.unwritten = Some(unwritten.0);
        }
    }

    /// Writes a message if `--verbose` is set.
    pub(super) fn tell(&mut self, message: impl FnOnce() -> String) {
        if self.is_verbose {
            self.say(message());
        }
    }

    /// Waits for all messages to be written, for at most one second.
    pub(super) fn finish(&mut self) {
        if let Some((messages, end)) = self.writer.take() {
            drop(messages);
            // Nothing is ever sent: this waits for the channel to close.
            let _: Result<(), RecvTimeoutError> = end.recv_timeout(PATIENCE);
        }
        if let Some(message) = self.unwritten.take() {
            say(&message);
        }
    }
}
