//! The system calls that have no safe wrapper: all of this package's unsafe code.

#![allow(unsafe_code, reason = "fork, pre_exec, sigaction and getpgid have no safe wrapper that fits")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::Pid;

/// Which side of a [`fork`] this is.
pub(crate) enum Fork {
    Child,
    /// With the child's process ID.
    Parent(Pid),
}

/// Splits this process in two.
///
/// # Errors
/// The system's, or one of our own if the process has more than one thread: the child would have the memory of all of
/// them, locks included, but not the threads.
pub(crate) fn fork() -> io::Result<Fork> {
    if thread_count().is_some_and(|count| count > 1) {
        return Err(io::Error::other("the process has other threads"));
    }
    // SAFETY: no other thread exists, so the child's copy of the memory is in no half-finished state.
    match unsafe { libc::fork() } {
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid)
            .filter(|pid| pid.as_raw_nonzero().get() > 0)
            .map(Fork::Parent)
            .ok_or_else(io::Error::last_os_error),
    }
}

/// The number of this process's threads, where the system tells.
fn thread_count() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

/// Returns a child that has ended, and leaves it to be reaped.
#[cfg(target_os = "linux")]
pub(crate) fn exited_child() -> Option<Pid> {
    // SAFETY: zeros are a valid value, which the system overwrites; without a child that has ended the number stays 0.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut info, options) != 0 {
            return None;
        }
        info.si_pid()
    };
    Pid::from_raw(pid)
}

/// Without subreapers there is no child but those that are known.
#[cfg(not(target_os = "linux"))]
pub(crate) fn exited_child() -> Option<Pid> {
    None
}

/// The process group of a process, by default of this one; `None` if the process is gone, or if its group has no number
/// here: that of a kernel thread, or one that was made outside this PID namespace.
pub(crate) fn group_of(pid: Option<Pid>) -> Option<Pid> {
    // SAFETY: it takes a number and returns one. The safe wrapper takes for granted that there is a group.
    let group = unsafe { libc::getpgid(Pid::as_raw(pid)) };
    Pid::from_raw(group.max(0))
}

/// Starts a process, in a group of its own, whose main thread has ended while another one waits to be killed.
///
/// # Errors
/// The system's.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn fork_without_main_thread() -> io::Result<Pid> {
    extern "C" fn wait(_: *mut libc::c_void) -> *mut libc::c_void {
        loop {
            // SAFETY: it takes nothing and changes nothing.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the child only calls the C library, which takes care of its own locks, and never returns.
    unsafe {
        match libc::fork() {
            0 => {
                libc::setpgid(0, 0);
                let mut thread = std::mem::zeroed();
                libc::pthread_create(&raw mut thread, std::ptr::null(), wait, std::ptr::null_mut());
                libc::syscall(libc::SYS_exit, 0);
                libc::abort()
            }
            pid => Pid::from_raw(pid.max(0)).ok_or_else(io::Error::last_os_error),
        }
    }
}

/// Starts a command. `setup` runs in the child, right before the command does.
///
/// `setup` must only make system calls: no allocation, no lock. Another thread of this process may hold any lock at the
/// time of the fork.
pub(crate) fn spawn(
    mut command: Command,
    setup: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Child> {
    // SAFETY: `setup` keeps to what is allowed between fork and exec, as said above.
    unsafe { command.pre_exec(setup) };
    command.spawn()
}

/// Returns whether the process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: a `sigaction` of zeros is a valid value, and a null pointer means to change nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Ignores a signal.
pub(crate) fn ignore(signal: i32) {
    set(signal, libc::SIG_IGN);
}

/// Gives a signal its default effect again. Only makes a system call.
pub(crate) fn reset(signal: i32) {
    set(signal, libc::SIG_DFL);
}

fn set(signal: i32, action: libc::sighandler_t) {
    // SAFETY: the action is not a function. It fails only for signals that cannot be changed.
    unsafe { libc::signal(signal, action) };
}

/// Stops this process's group as Ctrl-Z on a terminal does. Returns when this process is continued, or at once if nobody
/// could continue it: then the kernel does not stop it.
pub(crate) fn stop_group() {
    // SAFETY: all zeros is a valid value. The handler is replaced and put back by valid actions.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut before);
        libc::kill(0, libc::SIGTSTP);
        libc::sigaction(libc::SIGTSTP, &raw const before, std::ptr::null_mut());
    }
}
