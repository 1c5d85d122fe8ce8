//! `zlock run`, `zlock lead` and `zlock join`: runs a command while a lock is held. The command is dead before another client can hold the lock.
//!
//! Two processes share the work, so that each can kill the command if the other one cannot:
//!
//! ```text
//! shell ── front ── keeper ── command
//! ```
//!
//! - The *front* (`front.rs`) is the process that the shell, cron or systemd started. It forwards signals, lends the
//!   terminal to the command, and stops when the command is stopped, so that Ctrl-Z and `fg` work.
//! - The *keeper* (`keeper.rs`) owns the session, the lock and the command. It keeps running while the front is stopped.
//!   It kills the command and all of its descendants at the deadline, or when the front is gone.
//! - If the keeper dies, the kernel kills the command, and the front kills the rest. If the keeper hangs, the front kills
//!   everything a little later than the keeper would have (`vigil.rs`). It asks the keeper for that time well in advance.
//! - Both are subreapers: an orphan becomes a child of the keeper, or of the front if the keeper is dead. So processes
//!   that left the command's process group are found too.
//!
//! The keeper releases the lock only once no process of the group is alive. After a loss, all descendants of the command
//! must be dead. Only then is the command reaped, so that its group's ID cannot be reused while signals may be sent to it.

mod acquire;
mod child;
mod clock;
mod file;
mod front;
mod grace;
mod group;
mod keeper;
mod link;
mod log;
mod program;
mod signals;
mod terminal;
mod vigil;
mod watchdog;

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::getpid;

use crate::args::Run;
use crate::exit::{self, Failure};
use crate::limits;
use crate::store::Target;
use crate::sys::{self, Fork, fork};

use self::child::AGAIN;
use self::clock::Boot;
use self::front::{Again, Front};
use self::keeper::{Keeper, set_name};
use self::terminal::Terminal;

/// Runs the command and returns the exit code. `ignored` lists the signals that zlock has begun to ignore.
pub(crate) fn run(args: Run, ignored: Vec<i32>) -> ExitCode {
    start(args, ignored).unwrap_or_else(|failure| failure.report())
}

fn start(mut args: Run, ignored: Vec<i32>) -> Result<ExitCode, Failure> {
    let mut began = Boot::now();
    if let Some(first) = std::env::var_os(AGAIN) {
        args.is_again = true;
        began = first.to_str().and_then(|nanos| nanos.parse().ok()).map_or(began, Boot::from_nanos);
        // It may have begun as /proc/self/exe.
        set_name(c"zlock");
    }
    if args.shell && args.command.len() > 1 {
        return Err(Failure::failed("--shell takes the command as a single argument; put it in quotes"));
    }
    if let Some(folder) = file::folder(&args.store)? {
        return Err(file::run(&folder, &args, &ignored));
    }
    let target = Target::of(&args.store)?;
    target.refuse_private()?;
    limits::files()?;
    let terminal = Terminal::open().map(Arc::new);
    let cannot = |what: &str, error: std::io::Error| Failure::failed(format!("cannot {what}: {error}"));
    // If SIGCHLD is ignored, the system reaps children by itself, and their exit codes are lost.
    sys::reset(libc::SIGCHLD);
    if args.is_again {
        // The keeper of the last term.
        group::reap(&[]);
    }
    let inherited = group::children();
    let (front_end, keeper_end) = UnixStream::pair().map_err(|error| cannot("make a socket", error))?;
    let front = getpid();
    // No runtime has been created yet, so there is only one thread.
    match fork().map_err(|error| cannot("start a process", error))? {
        Fork::Child => {
            drop(front_end);
            let code = Keeper { args, target, terminal, front, ignored, began }.run(keeper_end);
            std::process::exit(code.into());
        }
        Fork::Parent(keeper) => {
            // A tick or key may have been claimed, which is done once.
            let is_claimed = args.tick.is_some() || args.once.is_some();
            let again = Again {
                after_loss: args.begins_again(),
                unstarted_until: args
                    .time_to_start()
                    .or(is_claimed.then_some(Duration::ZERO))
                    .map(|wait| began.plus(wait)),
            };
            drop((keeper_end, target, args));
            let mut ignored = ignored;
            ignored.extend(signals::ignore_terminal());
            let ended = Front::run(front_end, keeper, inherited, terminal, again)?;
            match ended.end_signal {
                _ if !ended.begins_again => Ok(ExitCode::from(ended.code)),
                Some(signal) => Ok(ExitCode::from(exit::by_signal(signal))),
                None => Err(begin_again(&ignored, began)),
            }
        }
    }
}

/// Campaigns or joins again after a loss, or waits for the lock again: this process begins anew, with nothing left of the last
/// attempt but the time at which the first one began. Only returns if that fails.
fn begin_again(ignored: &[i32], began: Boot) -> Failure {
    ignored.iter().for_each(|signal| sys::reset(*signal));
    let mut args = std::env::args_os();
    let name = args.next();
    // An upgrade may have replaced the file. The kernel still has the one that runs.
    let program = std::env::current_exe().ok().filter(|program| program.exists());
    let mut command = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()));
    if let Some(name) = name {
        command.arg0(name);
    }
    sys::keep_pipe(&mut command);
    let error = command.args(args).env(AGAIN, began.as_nanos().to_string()).exec();
    Failure::failed(format!("cannot begin again: {error}"))
}
