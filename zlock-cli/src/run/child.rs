//! Starts the command, and determines how it ended.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpid, getppid, setpgid, waitid, waitpid,
};

use super::clock::Boot;
use super::link::Message;
use super::terminal::Terminal;
use crate::exit::{self, Failure};
use crate::sys;

/// The variable that zlock sets for itself when it begins anew after a loss.
pub(super) const AGAIN: &str = "ZLOCK_AGAIN";

/// A running command, the leader of a process group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    pid: Pid,
}

/// The settings to start a command with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) command: Vec<OsString>,
    pub(super) shell: bool,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) terminal: Option<Arc<Terminal>>,
    /// The signals that zlock ignores, but did not ignore when it was started.
    pub(super) ignored: Vec<i32>,
    /// The end of the link on which the front learns that the command is about to be executed.
    pub(super) link: OwnedFd,
}

/// The error of a process that is too late to execute its command. `exec` itself never fails with it.
const TOO_LATE: Errno = Errno::CANCELED;

impl Start {
    /// Starts the command before `not_after`. This process may be stopped between any two instructions, so the new process
    /// checks the time right before it executes the command.
    ///
    /// The command is killed when the calling *thread* ends, so that thread must outlive the command.
    ///
    /// # Errors
    /// Fails with exit code 127 if the command was not found, 126 if it cannot be executed, and 125 after
    /// `not_after` or if the system has no room for another process.
    pub(super) fn spawn(self, not_after: Boot) -> Result<Child, Failure> {
        let Start { command, shell, environment, terminal, ignored, link } = self;
        let mut process = program(&command, shell);
        process.envs(environment);
        let (keeper, starting) = (getpid(), Message::Starting.encode());
        let setup = move || {
            let me = getpid();
            setpgid(None, None)?;
            die_with(keeper)?;
            if let Some(terminal) = &terminal {
                // The command runs even if the terminal hung up meanwhile.
                let _ = terminal.lend_unasked(me);
            }
            ignored.iter().for_each(|signal| sys::reset(*signal));
            if Boot::now() >= not_after {
                return Err(TOO_LATE.into());
            }
            rustix::io::write(&link, &starting)?;
            Ok(())
        };
        let child = sys::spawn(process, setup).map_err(|error| failure(&command[0], &error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Child { pid: pid.ok_or_else(|| Failure::failed("the system assigned no process ID"))? })
    }
}

/// The variables that a command may get from this process, but not from one that has started this one.
const VARIABLES: [&str; 6] =
    ["ZLOCK_TOKEN", "ZLOCK_PATH", "ZLOCK_NODE", "ZLOCK_TICK", "ZLOCK_ATTEMPT", AGAIN];

/// Returns the command, or the shell that runs it as a script. It has at least one word.
pub(super) fn program(command: &[OsString], is_script: bool) -> Command {
    let mut program = Command::new(if is_script { OsStr::new("sh") } else { &command[0] });
    if is_script {
        program.arg("-c").args(command);
    } else {
        program.args(&command[1..]);
    }
    for name in VARIABLES {
        program.env_remove(name);
    }
    sys::keep_pipe(&mut program);
    program
}

/// Makes the kernel kill this process when its parent ends.
#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the request reached the kernel.
    if getppid() == Some(parent) { Ok(()) } else { Err(Errno::PIPE.into()) }
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps, reason = "the same signature on all systems")]
fn die_with(_: Pid) -> io::Result<()> {
    Ok(())
}

pub(super) fn failure(program: &OsString, error: &io::Error) -> Failure {
    if error.raw_os_error() == Some(TOO_LATE.raw_os_error()) {
        return Failure::failed("the lock was lost before the command was started");
    }
    let (code, advice) = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            (exit::FAILED, "check the limits of processes and memory")
        }
        _ if [libc::EMFILE, libc::ENFILE].contains(&error.raw_os_error().unwrap_or(0)) => {
            (exit::FAILED, "check the limits of open files")
        }
        io::ErrorKind::NotFound => (exit::NOT_FOUND, "check the name and PATH"),
        io::ErrorKind::PermissionDenied => (exit::NOT_EXECUTABLE, "check that it may be executed"),
        _ => (exit::NOT_EXECUTABLE, "check that it is a program"),
    };
    Failure::new(code, format!("cannot run {}: {error}; {advice}", program.display()))
}

impl Child {
    /// Returns the command's process group.
    pub(super) fn group(self) -> Pid {
        self.pid
    }

    /// Returns the exit code if the command has ended: its own, or 128 plus the number of the signal that ended it. Does
    /// not reap the command, so that its process ID and its group's ID stay in use.
    pub(super) fn exited(self) -> Option<u8> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(status) => status.as_ref().map(code),
            // It was reaped elsewhere, so its exit code is unknown.
            Err(Errno::CHILD) => Some(exit::FAILED),
            Err(_) => None,
        }
    }

    /// Returns the signal that stopped the command since the last call, if any.
    pub(super) fn stopped(self) -> Option<i32> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.pid), options).ok()??.stopping_signal()
    }

    /// Reaps the command. It must have ended.
    pub(super) fn reap(self) {
        let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
    }
}

/// Returns the exit code for a status.
pub(super) fn code(status: &WaitIdStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(exit::FAILED),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::FAILED,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Duration;

    use super::*;

    fn spawn(script: &str, not_after: Boot) -> Result<Child, Failure> {
        spawn_with_link(script, not_after).0
    }

    /// Also returns what the front has got when it has ended.
    fn spawn_with_link(script: &str, not_after: Boot) -> (Result<Child, Failure>, Vec<u8>) {
        let (link, mut front) = std::os::unix::net::UnixStream::pair().unwrap();
        let (command, environment, ignored) = (vec![script.into()], Vec::new(), Vec::new());
        let link = link.into();
        let start = Start { command, shell: true, environment, terminal: None, ignored, link };
        let (child, mut got) = (start.spawn(not_after), Vec::new());
        front.read_to_end(&mut got).unwrap();
        (child, got)
    }

    fn ended(child: Child) -> u8 {
        loop {
            if let Some(code) = child.exited() {
                return code;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_command_is_not_started_after_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("started");
        let script = format!("touch {}", file.display());
        let (late, got) = spawn_with_link(&script, Boot::now());
        let failure = late.unwrap_err();
        assert!(got.is_empty(), "the front may wait for the lock again");
        assert_eq!(failure.message, "the lock was lost before the command was started");
        assert!(failure.code == exit::FAILED && !file.exists());
        let (child, got) = spawn_with_link(&script, Boot::now().plus(Duration::from_secs(60)));
        let child = child.unwrap();
        assert_eq!((ended(child), file.exists()), (0, true));
        assert_eq!(got, Message::Starting.encode());
        child.reap();
        // A reaped command's exit code is unknown.
        assert_eq!(child.exited(), Some(exit::FAILED));
    }

    /// The kernel would not kill such a command.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_whose_parent_has_ended_is_not_started() {
        let try_with = |parent: Pid| sys::spawn(Command::new("true"), move || die_with(parent));
        assert!(try_with(getpid()).unwrap().wait().unwrap().success());
        assert_eq!(try_with(Pid::INIT).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// The parent-death signal follows the thread, not the process.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_dies_with_the_thread_that_started_it() {
        let far = Boot::now().plus(Duration::from_secs(60));
        let (here, there) =
            (spawn("exec sleep 60", far).unwrap(), move || spawn("exec sleep 60", far).unwrap());
        let there = std::thread::spawn(there).join().unwrap();
        assert_eq!((ended(there), here.exited()), (exit::by_signal(libc::SIGKILL), None));
        super::super::group::signal(here.group(), Signal::KILL);
        assert_eq!(ended(here), exit::by_signal(libc::SIGKILL));
        here.reap();
        there.reap();
    }
}
