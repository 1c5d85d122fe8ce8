//! System calls without a safe wrapper. All unsafe code of this package is in this file.

#![allow(unsafe_code, reason = "fork, pre_exec, sigaction and getpgid have no safe wrapper that fits")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Pid;

/// The outcome of a [`fork`], in each of the two processes.
pub(crate) enum Fork {
    Child,
    /// With the child's process ID.
    Parent(Pid),
}

/// Creates a child process that is a copy of this one.
///
/// # Errors
/// - The system call fails.
/// - This process has more than one thread. The child would inherit their memory, locks included, but not the threads.
pub(crate) fn fork() -> io::Result<Fork> {
    if thread_count().is_some_and(|count| count > 1) {
        return Err(io::Error::other("the process has other threads"));
    }
    // SAFETY: no other thread exists, so the child's copy of the memory is consistent.
    match unsafe { libc::fork() } {
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid.max(0)).map(Fork::Parent).ok_or_else(io::Error::last_os_error),
    }
}

/// Returns the number of this process's threads, if the system reports it.
fn thread_count() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

/// Returns a child that has ended, without reaping it.
#[cfg(target_os = "linux")]
pub(crate) fn exited_child() -> Option<Pid> {
    // SAFETY: a zeroed value is valid. The system overwrites it; the process ID stays 0 if no child has ended.
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

/// Returns `None`: without subreapers, all children are known.
#[cfg(not(target_os = "linux"))]
pub(crate) fn exited_child() -> Option<Pid> {
    None
}

/// Returns the process group of a process, by default of this one. `None` if the process is gone, or if its group has no
/// number here: that of a kernel thread, or a group from outside this PID namespace.
pub(crate) fn group_of(pid: Option<Pid>) -> Option<Pid> {
    // SAFETY: getpgid takes a number and returns one. The safe wrapper assumes that there is a group.
    let group = unsafe { libc::getpgid(Pid::as_raw(pid)) };
    Pid::from_raw(group.max(0))
}

/// Starts a process, in its own group, whose main thread has ended while another thread still runs.
///
/// # Errors
/// The system call fails.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn fork_without_main_thread() -> io::Result<Pid> {
    extern "C" fn wait(_: *mut libc::c_void) -> *mut libc::c_void {
        loop {
            // SAFETY: `pause` has no arguments and changes no memory.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the child calls only the C library, which protects its own locks, and never returns.
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

/// Starts a command. `setup` runs in the child, right before the command is executed.
///
/// `setup` must only make system calls. It must not allocate or lock: another thread of this process may hold any lock
/// at the time of the fork.
pub(crate) fn spawn(
    mut command: Command,
    setup: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Child> {
    // SAFETY: `setup` only makes system calls, as required above.
    unsafe { command.pre_exec(setup) };
    command.spawn()
}

/// Returns `true` if this process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: a zeroed `sigaction` is valid, and a null pointer leaves the action unchanged.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether this process ignored SIGPIPE when it was started. The Rust runtime ignores it before `main`.
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);

/// Notes that before the Rust runtime starts.
#[cfg(target_os = "linux")]
#[used]
// SAFETY: the C library calls the functions in this section before `main`, and this one only makes a system call.
#[unsafe(link_section = ".init_array")]
static NOTE_PIPE: extern "C" fn() = {
    extern "C" fn note() {
        IGNORED_PIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    }
    note
};

/// Makes a command start with SIGPIPE ignored if this process was. The standard library would restore the default action.
pub(crate) fn keep_pipe(command: &mut Command) {
    if IGNORED_PIPE.load(Ordering::Relaxed) {
        let ignore = || {
            set(libc::SIGPIPE, libc::SIG_IGN);
            Ok(())
        };
        // SAFETY: it only makes a system call.
        unsafe { command.pre_exec(ignore) };
    }
}

/// Ignores signals. Returns those that were not ignored before.
pub(crate) fn ignore(signals: &[i32]) -> Vec<i32> {
    let changed: Vec<_> = signals.iter().copied().filter(|signal| !is_ignored(*signal)).collect();
    changed.iter().for_each(|signal| set(*signal, libc::SIG_IGN));
    changed
}

/// Restores the default action of a signal. Only makes a system call.
pub(crate) fn reset(signal: i32) {
    set(signal, libc::SIG_DFL);
}

fn set(signal: i32, action: libc::sighandler_t) {
    // SAFETY: the action is not a function. The call fails only for signals whose action cannot be changed.
    unsafe { libc::signal(signal, action) };
}

/// Stops this process group as Ctrl-Z on a terminal does. Returns when this process is continued. Returns at once for an
/// orphaned process group, which the kernel does not stop.
pub(crate) fn stop_group() {
    // SAFETY: a zeroed value is valid. The handler is replaced and restored by valid actions.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut before);
        libc::kill(0, libc::SIGTSTP);
        libc::sigaction(libc::SIGTSTP, &raw const before, std::ptr::null_mut());
    }
}
