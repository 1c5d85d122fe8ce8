//! The front: the process that the shell started.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::clock::{Alarm, Boot};
use super::group::{self, Patience};
use super::keeper::TO_END;
use super::link::{Link, Message};
use super::log::Log;
use super::signals;
use super::terminal::Terminal;
use super::vigil::{Duty, Vigil};
use crate::exit::{self, Failure, say};
use crate::sys;

#[derive(Debug)]
pub(super) struct Front {
    link: Link,
    keeper: Pid,
    /// Children from before this process was zlock: a shell may have started some before it executed zlock.
    inherited: Vec<Pid>,
    terminal: Option<Arc<Terminal>>,
    /// What follows another attempt.
    again: Again,
    /// The signals to forward.
    signals: UnboundedReceiver<i32>,
    /// The command's process group, once the command runs.
    group: Option<Pid>,
    /// When to kill the command, once the keeper has sent a time.
    vigil: Option<Vigil>,
    /// The exit code, once no command runs.
    done: Option<u8>,
    /// The keeper is recording that the command has succeeded.
    is_recording: bool,
    is_lost: bool,
    /// The command's process was about to execute it.
    may_have_started: bool,
    /// The command was not executed, and will not be.
    is_unstarted: bool,
    /// The last signal that asked zlock to end.
    end_signal: Option<i32>,
}

/// What is followed by another attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// A loss, which another campaign or join follows.
    pub(super) after_loss: bool,
    /// Until this time, a command that was not started. Without a time, always.
    pub(super) unstarted_until: Option<Boot>,
}

/// How a run has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: u8,
    /// `true` if another attempt follows. The command itself may exit with the code for a loss.
    pub(super) begins_again: bool,
    /// The last signal that asked zlock to end. The command may have ignored it.
    pub(super) end_signal: Option<i32>,
}

impl Front {
    /// Waits for the keeper to end. `inherited` lists the children other than the keeper.
    pub(super) fn run(
        link: UnixStream,
        keeper: Pid,
        inherited: Vec<Pid>,
        terminal: Option<Arc<Terminal>>,
        again: Again,
    ) -> Result<Ended, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // If any of this fails, the link closes, and the keeper ends.
        runtime.map_err(cannot_watch)?.block_on(async {
            group::adopt_orphans();
            let signals = signals::forwarded().map_err(cannot_watch)?;
            let link = Link::new(link).map_err(cannot_watch)?;
            Front::new(link, keeper, inherited, terminal, again, signals).watch().await
        })
    }

    fn new(
        link: Link,
        keeper: Pid,
        inherited: Vec<Pid>,
        terminal: Option<Arc<Terminal>>,
        again: Again,
        signals: UnboundedReceiver<i32>,
    ) -> Self {
        Front {
            link,
            keeper,
            inherited,
            terminal,
            again,
            signals,
            group: None,
            vigil: None,
            done: None,
            is_recording: false,
            is_lost: false,
            may_have_started: false,
            is_unstarted: false,
            end_signal: None,
        }
    }

    async fn watch(mut self) -> Result<Ended, Failure> {
        let alarm = Alarm::new().map_err(cannot_watch)?;
        let mut children = signal(SignalKind::child()).map_err(cannot_watch)?;
        // From now on, this process forwards signals and can kill the command.
        self.link.send(Message::Ask);
        loop {
            let wake_at = self.vigil.map(|vigil| vigil.wake_at());
            tokio::select! {
                biased;
                message = self.link.receive() => match message {
                    Some(message) => self.receive(message),
                    None => return self.keeper_has_ended().await,
                },
                () = alarm.at(wake_at.unwrap_or(Boot::now())), if wake_at.is_some() => {
                    if self.must_kill() {
                        return self.keeper_stands_still().await;
                    }
                }
                Some(signal) = self.signals.recv() => self.forward(signal),
                // Orphaned descendants of the command become children of this process.
                _ = children.recv() => self.reap(),
            }
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Started(group) => self.group = Pid::from_raw(group),
            Message::Deadline(nanos) => {
                let (now, kill_at) = (Boot::now(), Boot::from_nanos(nanos));
                match &mut self.vigil {
                    Some(vigil) => vigil.heard(now, kill_at),
                    None => self.vigil = Some(Vigil::new(now, kill_at)),
                }
            }
            Message::Stopped(signal) => self.stop(signal),
            Message::Done(code) => (self.done, self.is_recording) = (Some(code), false),
            Message::Recording => (self.done, self.is_recording) = (Some(exit::FAILED), true),
            Message::Lost => self.is_lost = true,
            Message::Starting => self.may_have_started = true,
            Message::Waiting => {
                self.vigil = None;
                if self.end_signal.is_some() {
                    self.limit_wait();
                }
            }
            Message::Signal(_) | Message::Ask => {}
        }
    }

    /// Returns `true` if this process must kill the command. Asks the keeper for a new time when that is due.
    fn must_kill(&mut self) -> bool {
        // An answer may have arrived while this process was stopped.
        while let Some(message) = self.link.try_receive() {
            self.receive(message);
        }
        let Some(vigil) = &mut self.vigil else { return false };
        match vigil.decide(Boot::now(), || group::is_stopped(self.keeper)) {
            Duty::Kill => return true,
            Duty::Ask => self.link.send(Message::Ask),
            Duty::Wait => {}
        }
        false
    }

    /// Stops together with the command, as a job of the shell does.
    fn stop(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else { return };
        // A command that needs the terminal gets it if the shell's job has it.
        let wants_terminal = signal == libc::SIGTTIN || signal == libc::SIGTTOU;
        if let Some(group) = self.group.filter(|_| wants_terminal && terminal.is_ours()) {
            let _ = terminal.lend(group);
        } else {
            sys::stop_group();
            // Whoever continues this group sends SIGCONT, which is forwarded. The kernel has not stopped an orphaned group, and
            // the command would stop again at once.
            if wants_terminal {
                return;
            }
        }
        self.go_on();
    }

    /// Continues the command, with the terminal if the shell's job has it.
    fn go_on(&mut self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group) {
            let _ = terminal.lend_unasked(group);
        }
        self.link.send(Message::Signal(libc::SIGCONT));
    }

    fn forward(&mut self, signal: i32) {
        match signal {
            libc::SIGCONT => self.go_on(),
            signal => {
                self.link.send(Message::Signal(signal));
                // SIGHUP and SIGQUIT may only make the command read its configuration or print its threads.
                if [libc::SIGTERM, libc::SIGINT].contains(&signal) {
                    self.end_signal = Some(signal);
                }
                // Before a command runs, this signal ends the keeper, unless the keeper hangs.
                if self.vigil.is_none() && signals::ends_a_wait(signal) {
                    self.limit_wait();
                }
            }
        }
    }

    /// Gives a keeper that was asked to end its wait for the lock a time limit.
    fn limit_wait(&mut self) {
        let now = Boot::now();
        self.vigil = Some(Vigil::new(now, now.plus(TO_END)));
    }

    async fn keeper_has_ended(mut self) -> Result<Ended, Failure> {
        if let Some(code) = self.done {
            return Ok(self.ended(code).await);
        }
        // The kernel kills the command itself, unless it has changed its user.
        self.kill().await;
        Err(Failure::failed("the process that held the lock died; the command was killed"))
    }

    async fn keeper_stands_still(mut self) -> Result<Ended, Failure> {
        if let Some(code) = self.done {
            // The command's process ID may be reused by now, so it is not signalled. The store ends the session.
            self.kill_keeper();
            return Ok(self.ended(code).await);
        }
        let why = silence(group::is_stopped(self.keeper), load());
        self.kill().await;
        // What they have sent before they died.
        while let Some(message) = self.link.try_receive() {
            self.receive(message);
        }
        if self.may_have_started || self.group.is_some() || !group::is_visible() {
            say(&format!("the process that held the lock {why}; the command was killed"));
            self.is_lost = true;
            return Ok(self.ended(exit::LOST).await);
        }
        say(&format!("the process that waited for the lock {why} and was killed"));
        self.is_unstarted = true;
        Ok(self.ended(exit::FAILED).await)
    }

    /// Kills the command, the keeper and all descendants of the command, and waits until they are dead. Once the keeper is
    /// dead, they are all descendants of this process.
    async fn kill(&self) {
        if let Some(group) = self.group {
            group::signal(group, Signal::KILL);
        }
        self.kill_keeper();
        let (mut patience, mut log) = (Patience::new(), Log::new(false));
        while let Some(alive) = group::kill(self.group, true, &self.inherited) {
            let (pause, message) = patience.next(alive);
            message.into_iter().for_each(|message| log.say(message));
            sleep(pause).await;
            self.reap();
            if !group::is_visible() {
                group::reap(&[]);
            }
        }
        log.finish();
        self.take_back_terminal();
    }

    /// Kills the keeper. It has not been reaped, so its process ID cannot have been reused.
    fn kill_keeper(&self) {
        let _ = kill_process(self.keeper, Signal::KILL);
    }

    fn reap(&self) {
        group::reap(&[Some(self.keeper), self.group].into_iter().flatten().collect::<Vec<_>>());
    }

    async fn ended(&mut self, code: u8) -> Ended {
        if self.is_recording {
            say("the process that held the lock ended before it had recorded that the command succeeded");
        }
        self.take_back_terminal();
        let Again { after_loss, unstarted_until } = self.again;
        let begins_again = self.is_lost && after_loss
            || self.is_unstarted && unstarted_until.is_none_or(|until| Boot::now() < until);
        if begins_again {
            // A signal that arrives from now on ends this process, unless it is the first one of a container.
            let caught = [libc::SIGTERM, libc::SIGINT].into_iter().filter(|signal| !sys::is_ignored(*signal));
            caught.for_each(sys::reset);
        }
        // Those that arrived together with the end. The tasks that pass them on have not run yet.
        for _ in 0..32 {
            yield_now().await;
        }
        while let Ok(signal) = self.signals.try_recv() {
            if [libc::SIGTERM, libc::SIGINT].contains(&signal) {
                self.end_signal = Some(signal);
            }
        }
        Ended { code, begins_again, end_signal: self.end_signal }
    }

    fn take_back_terminal(&self) {
        match (&self.terminal, self.group) {
            (Some(terminal), Some(group)) => terminal.take_back(group),
            (Some(terminal), None) => terminal.take_back_from_the_dead(),
            (None, _) => {}
        }
    }
}

/// Describes why the keeper did not respond in time: on a busy machine, a healthy one may be late.
fn silence(is_stopped: bool, load: Option<(f64, usize)>) -> String {
    /// A machine with this many running processes for each processor is overloaded.
    const MUCH: f64 = 4.0;

    match load {
        _ if is_stopped => "was stopped".to_owned(),
        Some((load, processors)) if load >= MUCH * processors as f64 => {
            format!(
                "did not respond in time (the machine is overloaded: load {load} on {processors} processors)"
            )
        }
        _ => "hung".to_owned(),
    }
}

/// Returns the average load of the last minute and the number of processors, if the system reports them.
fn load() -> Option<(f64, usize)> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()?;
    Some((load, std::thread::available_parallelism().ok()?.get()))
}

fn cannot_watch(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot watch the command: {error}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::getpid;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn a_busy_machine_is_not_a_process_that_hangs() {
        assert_eq!(silence(false, None), "hung");
        assert_eq!(silence(false, Some((7.9, 2))), "hung");
        assert_eq!(silence(true, Some((124.0, 2))), "was stopped");
        let busy = "did not respond in time (the machine is overloaded: load 124.5 on 2 processors)";
        assert_eq!(silence(false, Some((124.5, 2))), busy);
    }

    fn front(link: UnixStream, signals: UnboundedReceiver<i32>) -> Front {
        let again = Again { after_loss: false, unstarted_until: None };
        Front::new(Link::new(link).unwrap(), Pid::INIT, Vec::new(), None, again, signals)
    }

    #[tokio::test]
    async fn a_signal_that_arrives_with_the_end_counts() {
        let ((link, _keeper), signals) = (UnixStream::pair().unwrap(), signals::forwarded().unwrap());
        kill_process(getpid(), Signal::TERM).unwrap();
        // The handler may run on another thread. The runtime, which has this one alone, sees nothing meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(front(link, signals).ended(exit::LOST).await.end_signal, Some(libc::SIGTERM));
    }

    #[tokio::test]
    async fn what_was_not_started_begins_again_while_there_is_time() {
        let far = Boot::now().plus(Duration::from_secs(60));
        for (until, begins_again) in [(None, true), (Some(far), true), (Some(Boot::now()), false)] {
            let (link, _keeper) = UnixStream::pair().unwrap();
            let mut front = front(link, unbounded_channel().1);
            front.again.unstarted_until = until;
            assert!(!front.ended(0).await.begins_again);
            front.is_unstarted = true;
            assert_eq!(front.ended(exit::FAILED).await.begins_again, begins_again, "{until:?}");
        }
    }

    /// No command runs yet, and the keeper may stand still: it does not do what the signal says.
    #[tokio::test]
    async fn a_signal_that_ends_the_wait_for_the_lock_limits_it() {
        let (link, _keeper) = UnixStream::pair().unwrap();
        let mut front = front(link, unbounded_channel().1);
        for signal in [libc::SIGUSR1, libc::SIGWINCH, libc::SIGTSTP, libc::SIGCONT] {
            front.forward(signal);
            assert!(front.vigil.is_none(), "{signal}");
        }
        front.forward(libc::SIGTERM);
        let began = Boot::now();
        // Once more, from an impatient user: that gives the keeper no more time.
        front.forward(libc::SIGTERM);
        let vigil = front.vigil.as_mut().unwrap();
        let late = began.plus(TO_END);
        assert_eq!(vigil.decide(late.minus(Duration::from_secs(1)), || true), Duty::Ask);
        assert_eq!(vigil.decide(late, || true), Duty::Kill);
    }
}
