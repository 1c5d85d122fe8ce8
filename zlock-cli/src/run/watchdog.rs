//! Watches the command and the lock, decides when the command has to end, and ends it.

use std::pin::pin;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::task::yield_now;
use tokio::time::sleep;
use zlock::{Guard, SessionEvents};

use super::child::Child;
use super::clock::{Alarm, Boot, Sleeps};
use super::grace::Grace;
use super::group::{self, Patience};
use super::link::{Link, Message};
use super::log::Log;
use crate::exit::Failure;
use crate::store::Store;

/// Why the command has ended, or has to.
#[derive(Debug)]
pub(super) enum End {
    /// It has ended by itself, with this code.
    Exited(u8),
    /// The lock is lost, for this reason.
    Lost(String),
    /// The front has died.
    FrontGone,
}

#[derive(Debug)]
pub(super) struct Watchdog<'a> {
    guard: &'a Guard,
    grace: Grace,
    session: SessionEvents,
    sleeps: Sleeps,
    alarm: Alarm,
    children: Signals,
    /// How often to look whether the deadline has moved.
    tick: Duration,
    link: &'a mut Link,
    log: &'a mut Log,
    /// The session's deadline, as far as it is known.
    deadline: Boot,
    /// SIGTERM was sent because of a loss. From then on recovery makes no difference.
    is_ending: bool,
}

impl<'a> Watchdog<'a> {
    pub(super) fn new(
        guard: &'a Guard,
        grace: Grace,
        store: &Store,
        link: &'a mut Link,
        log: &'a mut Log,
    ) -> Result<Self, Failure> {
        let timeout = store.terms.timeout;
        Ok(Watchdog {
            guard,
            grace,
            session: store.session_events(),
            sleeps: Sleeps::new(timeout),
            alarm: Alarm::new().map_err(cannot_watch)?,
            children: signal(SignalKind::child()).map_err(cannot_watch)?,
            tick: (timeout / 20).clamp(Duration::from_millis(20), Duration::from_millis(500)),
            link,
            log,
            // Has passed.
            deadline: Boot::from_nanos(0),
            is_ending: false,
        })
    }

    /// Says to the front until when a command may run, and returns when it must not be started any more. What is known
    /// about the lock is checked after the front knows it, and the command's process looks at the clock once more.
    ///
    /// # Errors
    /// There is no time to run a command.
    pub(super) fn begin(&mut self) -> Result<Boot, Failure> {
        self.answer();
        let not_after = self.grace.term_at(self.deadline);
        if self.guard.is_held() && Boot::now() < not_after {
            return Ok(not_after);
        }
        Err(Failure::failed(format!("{}: lost before the command was started", self.guard.path())))
    }

    /// Waits until the command has ended or has to, and then until it is dead, and all that it must not leave. Then the
    /// command is not reaped, so that its number stays taken.
    pub(super) async fn watch(&mut self, child: Child) -> End {
        self.link.send(Message::Started(child.group().as_raw_nonzero().get()));
        let end = self.run(child).await;
        self.kill(child, &end).await;
        end
    }

    /// Waits until the command has ended or has to. Sends it SIGTERM when the lock is about to be lost, and the signals
    /// that the front forwards.
    async fn run(&mut self, child: Child) -> End {
        let guard = self.guard;
        let mut revoked = pin!(guard.revocation_requested());
        let mut may_be_revoked = true;
        loop {
            if let Some(code) = child.exited() {
                return self.exited(code);
            }
            if let Some(signal) = child.stopped() {
                self.link.send(Message::Stopped(signal));
            }
            group::reap(&[child.group()]);
            self.update();
            if !self.is_ending && Boot::now() >= self.grace.term_at(self.deadline) {
                self.let_answers_in().await;
            }
            let (now, term_at, kill_at) =
                (Boot::now(), self.grace.term_at(self.deadline), self.grace.kill_at(self.deadline));
            if now >= kill_at {
                return self.lost("no server responded in time");
            }
            if now >= term_at && !self.is_ending {
                self.is_ending = true;
                end(child);
                self.log.say(format!("{}: no server responds; sent SIGTERM to the command", guard.path()));
            }
            tokio::select! {
                biased;
                () = self.alarm.at(if self.is_ending { kill_at } else { term_at }) => {}
                loss = guard.lost() => return End::Lost(loss.to_string()),
                message = self.link.receive() => match message {
                    Some(Message::Signal(number)) => {
                        if let Some(signal) = Signal::from_named_raw(number) {
                            group::signal(child.group(), signal);
                        }
                    }
                    Some(Message::Ask) => self.answer(),
                    Some(_) => {}
                    None => return End::FrontGone,
                },
                asked = &mut revoked, if may_be_revoked => {
                    may_be_revoked = false;
                    if asked.is_ok() {
                        end(child);
                        self.log.say(format!("{}: asked to release the lock; sent SIGTERM to the command", guard.path()));
                    }
                }
                _ = self.children.recv() => {}
                () = sleep(self.tick) => {}
            }
        }
    }

    /// A command that has ended while the lock was lost, or about to be, has not ended under the lock.
    fn exited(&self, code: u8) -> End {
        if self.is_ending {
            self.lost("the lock was about to be lost")
        } else if self.guard.is_held() {
            End::Exited(code)
        } else {
            self.lost("the lock was lost before the command had ended")
        }
    }

    /// Lets the session's tasks, which share this thread, read what has arrived: it may be this process that is late.
    async fn let_answers_in(&mut self) {
        for _ in 0..32 {
            yield_now().await;
        }
        self.update();
    }

    fn lost(&self, why: &str) -> End {
        End::Lost(format!("{}: {why}", self.guard.path()))
    }

    /// Kills what must not outlive the command, until all of that is dead: what is left of its group, and unless it has
    /// ended by itself also what has left the group. A daemon that the command was to start may stay.
    async fn kill(&mut self, child: Child, end: &End) {
        // The decision is made. From here on the front has to know how long the lock is really kept.
        self.is_ending = false;
        self.answer();
        let everything = !matches!(end, End::Exited(_));
        let mut patience = Patience::new();
        let mut has_front = true;
        while let Some(alive) = group::kill(Some(child.group()), everything, &[]) {
            let (pause, message) = patience.next(alive);
            message.into_iter().for_each(|message| self.log.say(message));
            tokio::select! {
                biased;
                message = self.link.receive(), if has_front => match message {
                    Some(Message::Ask) => self.answer(),
                    Some(_) => {}
                    None => has_front = false,
                },
                () = sleep(pause) => {}
            }
            if group::is_visible() {
                group::reap(&[child.group()]);
            } else if child.exited().is_some() {
                child.reap();
            }
        }
    }

    /// Takes over the session's deadline, on the boot-time clock. A session that has ended leaves the last one.
    fn update(&mut self) {
        if self.is_ending {
            return;
        }
        if let Some(deadline) = self.session.current().deadline {
            self.deadline = self.sleeps.translate(deadline);
        }
    }

    /// Says to the front when it is to kill the command.
    fn answer(&mut self) {
        self.update();
        let kill_at = self.grace.front_kills_at(self.deadline);
        self.link.send(Message::Deadline(kill_at.as_nanos()));
    }
}

/// Asks a command to end. One that is stopped has to go on for that.
fn end(child: Child) {
    group::signal(child.group(), Signal::TERM);
    group::signal(child.group(), Signal::CONT);
}

fn cannot_watch(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot watch the command: {error}"))
}
