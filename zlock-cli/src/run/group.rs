//! Process groups and descendants: killing them, and knowing that they are dead.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

/// Sends a signal to every process of a group. Only for groups whose leader was not waited for, so that the number
/// belongs to nobody else.
pub(super) fn signal(group: Pid, signal: Signal) {
    // It fails if all have ended, or belong to another user: then nothing can be done.
    let _ = kill_process_group(group, signal);
}

/// Returns whether a process of the group still runs. The leader may wait to be reaped.
pub(super) fn is_alive(group: Pid) -> bool {
    match processes() {
        Some(mut all) => all.any(|process| process.group == group.as_raw_nonzero().get() && process.is_alive),
        // Without /proc a leader that is not reaped looks alive, so it must be reaped before.
        None => rustix::process::test_kill_process_group(group) != Err(Errno::SRCH),
    }
}

/// Kills every child of this process, but not the one given. On Linux orphans become children of a subreaper, so this
/// kills descendants that have left the group, a generation at a time. Returns whether there was one.
pub(super) fn kill_children(but: Option<Pid>) -> bool {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let mut any = false;
    for process in processes().into_iter().flatten().filter(|process| process.parent == me) {
        let Some(pid) = Pid::from_raw(process.pid).filter(|pid| Some(*pid) != but) else { continue };
        any = true;
        let _ = kill_process(pid, Signal::KILL);
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
    any
}

/// A process as `/proc` shows it.
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// Not a zombie.
    is_alive: bool,
}

/// All processes that can be seen; `None` if the system has no `/proc` as Linux has it.
fn processes() -> Option<impl Iterator<Item = Process>> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let entries = std::fs::read_dir("/proc").ok()?;
    Some(entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        let pid = name.to_str()?.parse().ok()?;
        parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }))
}

/// Reads `pid (name) state parent group ..`; the name may hold anything.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Process { pid, parent, group, is_alive: !matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_anything() {
        let process = parse(7, "7 (a) Z 9 9) S 1 5 5 0 -1").unwrap();
        assert_eq!((process.pid, process.parent, process.group, process.is_alive), (7, 1, 5, true));
        assert!(!parse(7, "7 (sh) Z 1 5 5 0 -1").unwrap().is_alive);
        assert!(parse(7, "").is_none());
    }

    #[test]
    fn this_process_is_alive() {
        assert!(is_alive(rustix::process::getpgrp()));
    }
}
