//! Kills process groups and descendants, and verifies that they are dead.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    test_kill_process_group, wait, waitid, waitpid,
};
use tokio::time::Instant;

use crate::sys;

/// Sends a signal to every process of a group. The group's leader must not have been reaped: otherwise the ID may be
/// reused.
pub(super) fn signal(group: Pid, signal: Signal) {
    // It fails if all processes have ended or belong to another user. Nothing can be done then.
    let _ = kill_process_group(group, signal);
}

/// Kills a process group and, with `descendants`, all descendants of this process except the children in `but`. Returns
/// a process that is still alive, or that ended during the search. A zombie leader does not count.
///
/// On Linux, orphans become children of a subreaper, so descendants are found in any group or session. More may appear
/// during the search: call this until it returns `None`. Then there is none left.
pub(super) fn kill(group: Option<Pid>, descendants: bool, but: &[Pid]) -> Option<Pid> {
    let look = || kill_what_is_seen(group, descendants, but);
    let before = look();
    if before.alive.is_some() || !descendants {
        return before.alive;
    }
    // A search misses a process that is started meanwhile. Its parent, or another process above it, was alive when the search
    // began. If that was not seen alive, it has ended, and as a child of this process it can be seen until it is reaped.
    let after = look();
    after.alive.or_else(|| after.ended.into_iter().find(|pid| !before.ended.contains(pid)))
}

/// The outcome of a search.
#[derive(Debug, Default)]
struct Seen {
    alive: Option<Pid>,
    /// The children of this process that have ended.
    ended: Vec<Pid>,
}

fn kill_what_is_seen(group: Option<Pid>, descendants: bool, but: &[Pid]) -> Seen {
    if let Some(group) = group {
        signal(group, Signal::KILL);
    }
    if descendants {
        kill_children(but);
    }
    let Some(all) = processes() else {
        // Without /proc, a leader that has not been reaped looks alive, so it must be reaped by now. Another group could
        // reuse its ID meanwhile, which is unlikely.
        let alive = group.filter(|group| test_kill_process_group(*group) != Err(Errno::SRCH));
        return Seen { alive, ended: Vec::new() };
    };
    let all: Vec<_> = all.filter(|process| !but.contains(&process.pid)).collect();
    let family = if descendants { living_descendants_of(getpid(), &all) } else { Vec::new() };
    family.iter().for_each(|process| kill_descendant(process));
    let alive = family.first().map(|process| process.pid).or_else(|| living_member(group?, &all));
    let ended = all.iter().filter(|process| !process.is_alive && process.parent == Some(getpid()));
    Seen { alive, ended: ended.map(|process| process.pid).collect() }
}

/// Kills the children of this process, as far as the system lists them. That takes much less time than a search, and so
/// catches a process that is about to start the next one and to end.
fn kill_children(but: &[Pid]) {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let children = children.split(' ').filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        children.filter(|pid| !but.contains(pid)).for_each(|pid| {
            let _ = kill_process(pid, Signal::KILL);
        });
    }
}

/// Returns a process of the group that is alive. The group's leader may be hidden in `/proc`.
fn living_member(group: Pid, all: &[Process]) -> Option<Pid> {
    let seen = all.iter().find(|process| process.is_alive && process.group == Some(group));
    seen.map(|process| process.pid).or(Some(group).filter(|leader| does_child_run(*leader) == Some(true)))
}

/// Asks the kernel whether a child of this process is running. Returns `None` if it is not a child.
fn does_child_run(pid: Pid) -> Option<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).ok().map(|status| status.is_none())
}

/// Returns the living descendants of a process, children first.
///
/// Dead processes count as parents: a process that was read before its parent died still names that parent.
fn living_descendants_of(ancestor: Pid, all: &[Process]) -> Vec<&Process> {
    let children = |parent| all.iter().filter(move |process| process.parent == Some(parent));
    let mut family: Vec<_> = children(ancestor).collect();
    let mut next = 0;
    while let Some(process) = family.get(next) {
        family.extend(children(process.pid));
        next += 1;
    }
    family.retain(|process| process.is_alive);
    family
}

/// Kills a descendant, and nothing else: the process ID of a process that is not a child may have been reused.
fn kill_descendant(process: &Process) {
    #[cfg(target_os = "linux")]
    if process.parent != Some(getpid()) {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

        // The descriptor refers to a single process. If that has the same parent, it is a descendant too.
        let Ok(descriptor) = pidfd_open(process.pid, PidfdFlags::empty()) else { return };
        if look(process.pid).is_some_and(|now| now.parent == process.parent) {
            let _ = pidfd_send_signal(&descriptor, Signal::KILL);
        }
        return;
    }
    let _ = kill_process(process.pid, Signal::KILL);
}

/// Reaps the children of this process that have ended. Stops at the first one in `but`, so that its process ID and its
/// group's ID stay in use.
pub(super) fn reap(but: &[Pid]) {
    if but.is_empty() {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
    while let Some(pid) = sys::exited_child().filter(|pid| !but.contains(pid)) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Makes this process the parent of its orphaned descendants.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Returns the children of this process.
pub(super) fn children() -> Vec<Pid> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if waitid(WaitId::All, options).is_err() {
        return Vec::new();
    }
    let all = processes().into_iter().flatten();
    all.filter(|process| process.parent == Some(getpid())).map(|process| process.pid).collect()
}

/// Returns `true` if a process is stopped by a signal or a debugger, and `false` if not or unknown.
pub(super) fn is_stopped(pid: Pid) -> bool {
    look(pid).is_some_and(|process| matches!(process.state, 'T' | 't'))
}

/// Returns `true` if the system lists its processes in `/proc`, as Linux does.
pub(super) fn is_visible() -> bool {
    cfg!(target_os = "linux") && std::path::Path::new("/proc/self/stat").exists()
}

/// A process, as shown in `/proc`.
#[derive(Debug)]
struct Process {
    pid: Pid,
    /// `None` if it is unknown.
    parent: Option<Pid>,
    group: Option<Pid>,
    state: char,
    /// `true` if one of its threads is running.
    is_alive: bool,
}

/// Returns all visible processes, or `None` if the system has no `/proc` like that of Linux.
fn processes() -> Option<impl Iterator<Item = Process>> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let entries = std::fs::read_dir("/proc").ok()?;
    Some(entries.filter_map(|entry| look(Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)?)))
}

/// Reads the state of a process. Returns `None` if it is gone.
fn look(pid: Pid) -> Option<Process> {
    let known = match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse(pid, &String::from_utf8_lossy(&stat)),
        Err(error) if is_gone(&error) => return None,
        Err(_) => None,
    };
    known.or_else(|| {
        // It exists but cannot be read, so it counts as alive unless it is a child that has ended.
        let group = sys::group_of(Some(pid));
        let is_alive = does_child_run(pid) != Some(false);
        group.map(|group| Process { pid, parent: None, group: Some(group), state: '?', is_alive })
    })
}

fn is_gone(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error).contains(&error.raw_os_error().unwrap_or(0))
}

/// Parses `pid (name) state parent group ..`. The name may contain any character.
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let mut pid_of = || Some(Pid::from_raw(fields.next()?.parse().ok().filter(|pid| *pid >= 0)?));
    let (parent, group) = (pid_of()?, pid_of()?);
    // The twentieth field. A process whose main thread has ended is shown as a zombie while other threads run.
    let threads: u32 = fields.nth(14)?.parse().ok()?;
    let is_alive = !matches!(state, 'Z' | 'X') || threads > 1;
    Some(Process { pid, parent, group, state, is_alive })
}

/// The pauses while waiting for killed processes to end.
#[derive(Debug)]
pub(super) struct Patience {
    since: Instant,
    pause: Duration,
    /// The process that was alive at the last check.
    last: Option<Pid>,
    has_said: bool,
}

impl Patience {
    const FIRST_PAUSE: Duration = Duration::from_millis(2);
    const LONGEST_PAUSE: Duration = Duration::from_millis(100);
    /// When to report a process that has not ended.
    const TO_SAY: Duration = Duration::from_secs(3);

    pub(super) fn new() -> Self {
        Patience { since: Instant::now(), pause: Self::FIRST_PAUSE, last: None, has_said: false }
    }

    /// Returns the pause before the next check and, once, a message about a process that does not end.
    ///
    /// There is no pause after a process that was not seen before: one that is killed may have started another one.
    pub(super) fn next(&mut self, alive: Pid) -> (Duration, Option<String>) {
        if self.last.replace(alive) != Some(alive) {
            self.pause = Self::FIRST_PAUSE;
            return (Duration::ZERO, None);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(Self::LONGEST_PAUSE);
        let is_late = self.since.elapsed() >= Self::TO_SAY && !self.has_said;
        self.has_said |= is_late;
        let say = || {
            format!(
                "process {alive} was killed but has not ended: it is in an uninterruptible system call, or belongs to \
                 another user; waiting for it"
            )
        };
        (pause, is_late.then(say))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_in_every_generation() {
        let process = |pid, parent, is_alive| {
            let (pid, parent) = (Pid::from_raw(pid).unwrap(), Pid::from_raw(parent));
            Process { pid, parent, group: None, state: '?', is_alive }
        };
        let found = |all: &[Process]| {
            let family = living_descendants_of(Pid::from_raw(3).unwrap(), all);
            family.iter().map(|process| process.pid.as_raw_nonzero().get()).collect::<Vec<_>>()
        };
        let alive =
            [(9, 8), (5, 1), (7, 3), (8, 7), (6, 5), (4, 3)].map(|(pid, parent)| process(pid, parent, true));
        assert_eq!(found(&alive), [7, 4, 8, 9]);
        // The parent died after its child was read.
        assert_eq!(found(&[process(4, 6, true), process(6, 3, false)]), [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow_and_a_process_that_stays_is_named_once() {
        let mut patience = Patience::new();
        let (mut pauses, mut said) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let (pause, message) = patience.next(Pid::INIT);
            tokio::time::sleep(pause).await;
            pauses.push(pause.as_millis());
            said.extend(message);
        }
        assert_eq!(pauses[..9], [0, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("process 1 was killed but has not ended"), "{said:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_pause_while_new_processes_are_found() {
        let mut patience = Patience::new();
        for pid in 1..1000 {
            assert_eq!(patience.next(Pid::from_raw(pid).unwrap()), (Duration::ZERO, None));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(patience.next(Pid::from_raw(999).unwrap()).0, Duration::from_millis(2));
        assert_eq!(patience.next(Pid::from_raw(7).unwrap()).0, Duration::ZERO);
    }

    fn seven() -> Pid {
        Pid::from_raw(7).unwrap()
    }

    /// Returns a line of `/proc/PID/stat` up to the number of threads.
    fn stat(name: &str, state: char, threads: u32) -> String {
        format!("7 ({name}) {state} 1 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 99 0")
    }

    #[test]
    fn a_name_may_look_like_anything() {
        let process = parse(seven(), &stat("a) Z 9 9", 'S', 1)).unwrap();
        assert_eq!((process.parent, process.group), (Pid::from_raw(1), Pid::from_raw(5)));
        assert!(process.is_alive && process.state == 'S');
        assert!(parse(seven(), "").is_none() && parse(seven(), "7 (sh) S 1 5").is_none());
    }

    #[test]
    fn the_last_thread_decides() {
        assert!(!parse(seven(), &stat("sh", 'Z', 1)).unwrap().is_alive);
        assert!(!parse(seven(), &stat("sh", 'X', 0)).unwrap().is_alive);
        assert!(parse(seven(), &stat("sh", 'Z', 2)).unwrap().is_alive);
        assert!(parse(seven(), &stat("sh", 'D', 1)).unwrap().is_alive);
    }

    #[test]
    fn a_process_that_cannot_be_read_is_not_dead() {
        assert!(is_gone(&Errno::NOENT.into()) && is_gone(&Errno::SRCH.into()));
        assert!(!is_gone(&Errno::MFILE.into()) && !is_gone(&Errno::ACCESS.into()));
        assert!(look(Pid::from_raw(i32::MAX).unwrap()).is_none());
        assert!(look(Pid::INIT).is_some_and(|init| init.is_alive));
    }

    #[test]
    fn a_leader_that_is_hidden_is_alive_until_the_kernel_says_otherwise() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert_eq!(living_member(pid, &[]), Some(pid));
        child.kill().unwrap();
        while living_member(pid, &[]).is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(does_child_run(pid), Some(false));
        child.wait().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_whose_main_thread_has_ended_is_alive() {
        let child = sys::fork_without_main_thread().unwrap();
        let pause = || std::thread::sleep(Duration::from_millis(1));
        while look(child).unwrap().state != 'Z' {
            pause();
        }
        let is_alive = look(child).unwrap().is_alive;
        while kill(Some(child), false, &[]).is_some() {
            pause();
        }
        assert!(is_alive);
        // It has ended but has not been reaped.
        assert!(waitpid(Some(child), WaitOptions::NOHANG).unwrap().is_some());
    }
}
