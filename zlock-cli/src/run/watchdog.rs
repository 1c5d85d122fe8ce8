//! Watches the command and the lock, and stops the command when it must end.

use std::pin::pin;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::task::yield_now;
use tokio::time::sleep;
use zlock::SessionEvents;

use super::acquire::Held;
use super::child::Child;
use super::clock::{Alarm, Boot, Sleeps};
use super::grace::Grace;
use super::group::{self, Patience};
use super::link::{Link, Message};
use super::log::Log;
use crate::exit::Failure;
use crate::store::Store;

/// Why the command has ended or must end.
#[derive(Debug)]
pub(super) enum End {
    /// The command ended by itself with this exit code.
    Exited(u8),
    /// The lock was lost for this reason.
    Lost(String),
    /// The front died.
    FrontGone,
}

#[derive(Debug)]
pub(super) struct Watchdog<'a> {
    held: &'a Held,
    grace: Grace,
    session: SessionEvents,
    sleeps: Sleeps,
    alarm: Alarm,
    children: Signals,
    /// How often to check for a new deadline.
    tick: Duration,
    link: &'a mut Link,
    log: &'a mut Log,
    /// The session's latest known deadline.
    deadline: Boot,
    /// `true` once SIGTERM was sent because of a loss. A recovery no longer matters then.
    is_ending: bool,
    /// The longest hold.
    max_hold: Option<Duration>,
    /// When it is over, and then when the command is killed.
    over_at: Option<Boot>,
    /// `true` once SIGTERM was sent because the longest hold was over.
    is_overdue: bool,
    /// `true` once somebody has asked for the lock.
    is_asked: bool,
}

impl<'a> Watchdog<'a> {
    pub(super) fn new(
        held: &'a Held,
        (grace, max_hold): (Grace, Option<Duration>),
        store: &Store,
        link: &'a mut Link,
        log: &'a mut Log,
    ) -> Result<Self, Failure> {
        let timeout = store.terms.timeout;
        Ok(Watchdog {
            held,
            grace,
            session: store.session_events(),
            sleeps: Sleeps::new(timeout),
            alarm: Alarm::new().map_err(cannot_watch)?,
            children: signal(SignalKind::child()).map_err(cannot_watch)?,
            tick: (timeout / 20).clamp(Duration::from_millis(20), Duration::from_millis(500)),
            link,
            log,
            // In the past.
            deadline: Boot::from_nanos(0),
            is_ending: false,
            max_hold,
            over_at: max_hold.map(|longest| Boot::now().plus(longest)),
            is_overdue: false,
            is_asked: false,
        })
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Sends the front the time to kill the command, and returns the time after which it must not be started. The lock is
    /// checked after the front has been informed, and the command's process checks the clock once more.
    ///
    /// # Errors
    /// Fails if the lock is lost or about to be lost.
    pub(super) fn begin(&mut self) -> Result<Boot, Failure> {
        self.answer();
        let not_after = self.grace.term_at(self.deadline);
        if self.held.is_held() && Boot::now() < not_after {
            return Ok(not_after);
        }
        let why = if self.held.is_held() {
            "too little time is left to start the command, since the servers answer late"
        } else {
            "lost before the command was started"
        };
        Err(Failure::failed(format!("{}: {why}", self.held.path())))
    }

    /// Waits until the command has ended or must end, and then until all processes that must not outlive it are dead. Does
    /// not reap the command, so that its process ID stays in use.
    pub(super) async fn watch(&mut self, child: Child) -> End {
        self.link.send(Message::Started(child.group().as_raw_nonzero().get()));
        let end = self.run(child).await;
        self.kill(child, &end).await;
        end
    }

    /// Waits until the command has ended or must be killed. Sends it SIGTERM when the lock is about to be lost, and the
    /// signals that the front forwards.
    async fn run(&mut self, child: Child) -> End {
        let held = self.held;
        let mut revoked = pin!(held.asked());
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
                self.log.say(format!("{}: no server responds; sent SIGTERM to the command", held.path()));
            }
            if self.over_at.is_some_and(|at| now >= at) {
                if self.is_overdue {
                    return self.overdue();
                }
                self.is_overdue = true;
                self.over_at = Some(now.plus(self.grace.kill_after()));
                if !self.is_ending {
                    end(child);
                }
                self.log
                    .say(format!("{}: the longest hold is over; sent SIGTERM to the command", held.path()));
            }
            let wake_at = if self.is_ending { kill_at } else { term_at };
            let wake_at = self.over_at.map_or(wake_at, |at| wake_at.min(at));
            tokio::select! {
                biased;
                () = self.alarm.at(wake_at) => {}
                loss = held.lost() => return End::Lost(loss.to_string()),
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
                        self.is_asked = true;
                        end(child);
                        self.log.say(format!("{}: asked to release the lock; sent SIGTERM to the command", held.path()));
                    }
                }
                _ = self.children.recv() => {}
                () = sleep(self.tick) => {}
            }
        }
    }

    /// Classifies the end of a command. If the lock was lost or about to be lost, the command did not end under the lock.
    fn exited(&mut self, code: u8) -> End {
        // The machine may have slept until now.
        self.update();
        if self.is_ending {
            self.lost("the lock was about to be lost")
        } else if self.is_overdue {
            self.overdue()
        } else if self.held.is_held() && Boot::now() < self.deadline {
            End::Exited(code)
        } else {
            self.lost("the lock was lost before the command had ended")
        }
    }

    /// Lets the session's tasks, which share this thread, read pending responses: the delay may be in this process.
    async fn let_answers_in(&mut self) {
        for _ in 0..32 {
            yield_now().await;
        }
        self.update();
    }

    fn overdue(&self) -> End {
        let longest = self.max_hold.unwrap_or_default();
        self.lost(&format!("held for longer than {longest:?}"))
    }

    fn lost(&self, why: &str) -> End {
        End::Lost(format!("{}: {why}", self.held.path()))
    }

    /// Kills all processes that must not outlive the command, and waits until they are dead. Those are the rest of its
    /// group and, unless the command ended by itself, descendants that left the group. In that case they may be daemons.
    async fn kill(&mut self, child: Child, end: &End) {
        // The decision is made. From here on, the front needs the session's actual deadline.
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

    /// Reads the session's deadline on the boot-time clock. Once the session has ended, keeps the last one.
    fn update(&mut self) {
        if self.is_ending {
            return;
        }
        if let Some(deadline) = self.session.current().deadline {
            self.deadline = self.sleeps.translate(deadline);
        }
    }

    /// Sends the front the time at which it must kill the command.
    fn answer(&mut self) {
        self.update();
        let kill_at = self.grace.front_kills_at(self.deadline);
        self.link.send(Message::Deadline(kill_at.as_nanos()));
    }
}

/// Asks a command to end. A stopped command is continued, so that it can react.
fn end(child: Child) {
    group::signal(child.group(), Signal::TERM);
    group::signal(child.group(), Signal::CONT);
}

fn cannot_watch(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot watch the command: {error}"))
}
