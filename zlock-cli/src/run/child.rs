//! The command: how it starts, and how it ends.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpid, getppid, setpgid, waitid, waitpid,
};

use super::terminal::Terminal;
use crate::exit::{self, Failure};
use crate::sys;

/// A command that was started, as the leader of a process group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    pid: Pid,
}

/// What a command is started with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) command: Vec<OsString>,
    pub(super) shell: bool,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) terminal: Option<Arc<Terminal>>,
    /// The signals that are ignored here and were not when zlock was started.
    pub(super) ignored: Vec<i32>,
}

impl Start {
    /// Starts the command. It is killed when the calling *thread* ends, so that must be one that outlives the command.
    ///
    /// # Errors
    /// 127 if there is no such command, 126 if it cannot be executed.
    pub(super) fn spawn(self) -> Result<Child, Failure> {
        let Start { command, shell, environment, terminal, ignored } = self;
        let program = command.first().cloned().unwrap_or_default();
        let mut process = if shell {
            let mut process = Command::new("sh");
            process.arg("-c");
            process
        } else {
            Command::new(&program)
        };
        process.args(if shell { &command[..] } else { &command[1..] });
        process.envs(environment);
        let keeper = getpid();
        let setup = move || {
            let me = getpid();
            setpgid(None, None)?;
            die_with(keeper)?;
            if let Some(terminal) = &terminal {
                // A terminal that hung up in between is no reason not to run.
                let _ = terminal.lend(me);
            }
            ignored.iter().for_each(|signal| sys::reset(*signal));
            Ok(())
        };
        let child = sys::spawn(process, setup).map_err(|error| failure(&program, &error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Child { pid: pid.ok_or_else(|| Failure::failed("the system has given a process no number"))? })
    }
}

/// Has the kernel kill this process when its parent ends.
#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before the kernel knew of our wish.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps, reason = "the same signature on all systems")]
fn die_with(_: Pid) -> io::Result<()> {
    Ok(())
}

fn failure(program: &OsString, error: &io::Error) -> Failure {
    let (code, advice) = match error.kind() {
        io::ErrorKind::NotFound => (exit::NOT_FOUND, "check the name and PATH"),
        io::ErrorKind::PermissionDenied => (exit::NOT_EXECUTABLE, "check that it may be executed"),
        _ => (exit::NOT_EXECUTABLE, "check that it is a program"),
    };
    Failure::new(code, format!("cannot run {}: {error}; {advice}", program.display()))
}

impl Child {
    /// The process group that it leads.
    pub(super) fn group(self) -> Pid {
        self.pid
    }

    /// Returns the exit code if the command has ended: its own, or 128 and the signal that ended it. Does not reap it, so
    /// that its number and its group's stay taken.
    pub(super) fn exited(self) -> Option<u8> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Some(code(&waitid(WaitId::Pid(self.pid), options).ok()??))
    }

    /// Returns the signal that stopped the command since the last call, if one did.
    pub(super) fn stopped(self) -> Option<i32> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.pid), options).ok()??.stopping_signal()
    }

    /// Reaps the command, which must have ended.
    pub(super) fn reap(self) {
        let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
    }
}

/// The exit code that a status stands for.
pub(super) fn code(status: &WaitIdStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(exit::FAILED),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::FAILED,
    }
}
