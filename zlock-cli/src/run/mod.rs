//! `zlock run`: a command that runs while a lock is held, and is dead before anybody else can hold it.
//!
//! Two processes do that, so that each can end the command when the other one cannot:
//!
//! ```text
//! shell ── front ── keeper ── command
//! ```
//!
//! - The *front* (`front.rs`) is what the shell, cron or systemd started. It forwards signals, lends the terminal to the
//!   command, and stops when the command is stopped, so that Ctrl-Z and `fg` work.
//! - The *keeper* (`keeper.rs`) has the session with the store, the lock and the command. It goes on while the front is
//!   stopped. It kills the command and all that it has started at the deadline, and when the front is gone.
//! - If the keeper dies, the kernel kills the command, and the front kills the rest. If the keeper stands still, the front
//!   kills everything a little later than the keeper would have (`vigil.rs`). It asks the keeper for that time long before.
//! - Both are subreapers: an orphan becomes a child of the keeper, and of the front if the keeper is dead. So what has left
//!   the command's process group is found, too.
//!
//! The keeper releases the lock only when no process of the group is alive; after a loss, nothing that the command has
//! started. The command's process is reaped after that, so the number of the group belongs to nobody else as long as
//! signals may be sent to it.

mod acquire;
mod child;
mod clock;
mod front;
mod grace;
mod group;
mod keeper;
mod link;
mod log;
mod signals;
mod terminal;
mod vigil;
mod watchdog;

use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::getpid;

use crate::args::Run;
use crate::exit::Failure;
use crate::store::Target;
use crate::sys::{self, Fork, fork};

use self::front::Front;
use self::keeper::Keeper;
use self::terminal::Terminal;

/// Runs the command, and returns the exit code.
pub(crate) fn run(args: Run) -> ExitCode {
    start(args).unwrap_or_else(|failure| failure.report())
}

fn start(args: Run) -> Result<ExitCode, Failure> {
    let target = Target::of(&args.store)?;
    target.refuse_private()?;
    let terminal = Terminal::open().map(Arc::new);
    let cannot = |what: &str, error: std::io::Error| Failure::failed(format!("cannot {what}: {error}"));
    // If it is ignored, the system reaps children by itself, and nobody learns how they ended.
    sys::reset(libc::SIGCHLD);
    let inherited = group::children();
    let (front_end, keeper_end) = UnixStream::pair().map_err(|error| cannot("make a socket", error))?;
    let front = getpid();
    // No runtime has begun, so there is one thread.
    match fork().map_err(|error| cannot("start a process", error))? {
        Fork::Child => {
            drop(front_end);
            let code = Keeper { args, target, terminal, front }.run(keeper_end);
            std::process::exit(code.into());
        }
        Fork::Parent(keeper) => {
            drop((keeper_end, target, args));
            Front::run(front_end, keeper, inherited, terminal)
        }
    }
}
