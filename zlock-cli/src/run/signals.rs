//! How the two processes of `zlock run` handle signals.

use libc::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use libc::{SIGTTIN, SIGTTOU};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::sys::{self, ignore};

/// The signals that are forwarded to the command. Excludes signals caused by zlock itself (SIGCHLD, SIGPIPE, SIGTTIN,
/// SIGTTOU, faults).
const FORWARDED: [i32; 10] =
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP, SIGCONT];

/// The signals that end `zlock run` while it waits for its lock.
const ENDING: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM];

/// Returns `true` if the signal ends the wait for the lock.
pub(super) fn ends_a_wait(signal: i32) -> bool {
    ENDING.contains(&signal)
}

/// Returns the signals that arrive at the front, in order. A signal that was ignored when zlock was started stays
/// ignored, as `nohup` requires.
pub(super) fn forwarded() -> std::io::Result<mpsc::UnboundedReceiver<i32>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for number in FORWARDED.into_iter().filter(|number| !sys::is_ignored(*number)) {
        let mut arrived = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while arrived.recv().await.is_some() {
                if sender.send(number).is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// Lets a background process write to the terminal and change its foreground group. Returns the signals that
/// [`sys::reset`] must restore in a command.
pub(super) fn ignore_terminal() -> Vec<i32> {
    ignore(&[SIGTTIN, SIGTTOU])
}

/// Makes the keeper ignore all signals that it can: the front forwards them over the link.
pub(super) fn ignore_all() -> Vec<i32> {
    let all: Vec<_> = FORWARDED.into_iter().filter(|number| *number != SIGCONT).collect();
    ignore(&all)
}
