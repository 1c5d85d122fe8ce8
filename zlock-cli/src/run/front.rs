//! The front: the process that the shell knows.

use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

use super::clock::{Alarm, Boot};
use super::group;
use super::link::{Link, Message};
use super::signals;
use super::terminal::Terminal;
use crate::exit::{self, Failure};
use crate::sys;

/// How long a keeper may take to say that the lock is held.
const QUESTION: Duration = Duration::from_millis(40);

/// The same, if this process was stopped, maybe past the deadline that it knows.
const LATE_QUESTION: Duration = Duration::from_secs(1);

/// How long to look for processes that appear while others are killed.
const CLEAN_UP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Front {
    link: Link,
    keeper: Pid,
    terminal: Option<Arc<Terminal>>,
    /// Those that are to be forwarded.
    signals: UnboundedReceiver<i32>,
    /// The command's process group, once it runs.
    group: Option<Pid>,
    /// When the keeper must have ended the command, by what it said last.
    overdue_at: Option<Boot>,
    /// Since the keeper said so.
    was_stopped: bool,
    /// The exit code, once the keeper has sent it.
    done: Option<u8>,
}

impl Front {
    /// Waits for the keeper to end, and returns the exit code.
    pub(super) fn run(
        link: UnixStream,
        keeper: Pid,
        terminal: Option<Arc<Terminal>>,
    ) -> Result<ExitCode, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let failed = |error: std::io::Error| Failure::failed(format!("cannot watch the command: {error}"));
        // If anything of this fails, the link closes, and the keeper ends.
        let code = runtime.map_err(failed)?.block_on(async {
            become_subreaper();
            signals::ignore_terminal();
            let signals = signals::forwarded().map_err(failed)?;
            let link = Link::new(link).map_err(failed)?;
            let front = Front {
                link,
                keeper,
                terminal,
                signals,
                group: None,
                overdue_at: None,
                was_stopped: false,
                done: None,
            };
            front.watch().await
        })?;
        Ok(ExitCode::from(code))
    }

    async fn watch(mut self) -> Result<u8, Failure> {
        let failed = |error| Failure::failed(format!("cannot watch the command: {error}"));
        let alarm = Alarm::new().map_err(failed)?;
        let mut children = signal(SignalKind::child()).map_err(failed)?;
        loop {
            if let Some(code) = self.done {
                self.end();
                return Ok(code);
            }
            let ask_at = self.overdue_at.map_or(Boot::now(), |overdue_at| overdue_at.minus(QUESTION));
            tokio::select! {
                biased;
                message = self.link.receive() => match message {
                    Some(message) => self.receive(message).await,
                    None => return Err(self.keeper_died().await),
                },
                () = alarm.at(ask_at), if self.overdue_at.is_some() => {
                    if self.is_overdue(&alarm).await {
                        return Err(self.keeper_stands_still().await);
                    }
                }
                Some(signal) = self.signals.recv() => self.forward(signal),
                // Descendants of the command, which have become children of this process.
                _ = children.recv() => reap(),
            }
        }
    }

    async fn receive(&mut self, message: Message) {
        match message {
            Message::Started(group) => self.group = Pid::from_raw(group),
            Message::Deadline(nanos) => {
                (self.overdue_at, self.was_stopped) = (Some(Boot::from_nanos(nanos)), false);
                self.link.send(Message::Ack);
            }
            Message::Stopped(signal) => self.stop(signal),
            Message::Lost => {
                self.overdue_at = None;
                kill_children(Some(self.keeper)).await;
            }
            Message::Ended => self.overdue_at = None,
            Message::Done(code) => self.done = Some(code),
            Message::Signal(_) | Message::Ack | Message::Ask => {}
        }
    }

    /// Stops with the command, as a job of the shell does.
    fn stop(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else { return };
        // A command that wants the terminal gets it if it is ours.
        let wants_terminal = signal == libc::SIGTTIN || signal == libc::SIGTTOU;
        if !(wants_terminal && terminal.is_ours()) {
            sys::stop_group();
        }
        self.go_on();
    }

    /// Lets the command go on, with the terminal if the shell has given it to us.
    fn go_on(&mut self) {
        self.was_stopped = true;
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group) {
            let _ = terminal.lend(group);
        }
        self.link.send(Message::Signal(libc::SIGCONT));
    }

    fn forward(&mut self, signal: i32) {
        match signal {
            libc::SIGTSTP if self.group.is_none() => sys::stop_group(),
            libc::SIGCONT => self.go_on(),
            signal => self.link.send(Message::Signal(signal)),
        }
    }

    /// Returns whether the keeper does not say that the lock is held. If this process was stopped it knows nothing new, and
    /// takes more time to ask.
    async fn is_overdue(&mut self, alarm: &Alarm) -> bool {
        let known = self.overdue_at;
        self.link.send(Message::Ask);
        let mut until = Boot::now().plus(QUESTION);
        while self.overdue_at == known && self.done.is_none() {
            if self.was_stopped {
                until = until.max(Boot::now().plus(LATE_QUESTION));
                self.was_stopped = false;
            }
            tokio::select! {
                biased;
                message = self.link.receive() => match message {
                    Some(message) => self.receive(message).await,
                    // The next look at the link says so again.
                    None => return false,
                },
                Some(signal) = self.signals.recv() => self.forward(signal),
                () = alarm.at(until) => return true,
            }
        }
        false
    }

    /// The kernel has killed the command. Everything that it has started became a child of this process.
    async fn keeper_died(&self) -> Failure {
        kill_children(None).await;
        self.end();
        Failure::failed("the process that held the lock has died; the command was killed")
    }

    async fn keeper_stands_still(&self) -> Failure {
        if let Some(group) = self.group {
            group::signal(group, Signal::KILL);
        }
        let _ = kill_process(self.keeper, Signal::KILL);
        kill_children(None).await;
        self.end();
        let message = "the process that held the lock stood still; the command was killed";
        Failure::new(exit::LOST, message)
    }

    fn end(&self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group) {
            terminal.take_back(group);
        }
        reap();
    }
}

/// Makes this process the parent of orphaned descendants.
fn become_subreaper() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Reaps every child that has ended.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Kills all descendants but the keeper.
async fn kill_children(keeper: Option<Pid>) {
    let kill = async {
        while group::kill_children(keeper) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let _ = timeout(CLEAN_UP, kill).await;
}
