//! Watches the command and the lock, and decides when the command has to end.

use std::pin::pin;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use zlock::{Guard, SessionEvents};

use super::child::Child;
use super::clock::{Alarm, Boot, Sleeps};
use super::grace::Grace;
use super::group;
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
    /// How often to look whether the deadline has moved.
    tick: Duration,
    link: &'a mut Link,
    log: &'a mut Log,
    /// The deadline that the front knows, and whether it has received it.
    published: Option<Boot>,
    is_received: bool,
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
            alarm: Alarm::new().map_err(failed)?,
            tick: (timeout / 20).clamp(Duration::from_millis(20), Duration::from_millis(500)),
            link,
            log,
            published: None,
            is_received: true,
        })
    }

    /// Checks that there is time to run a command, and tells the front until when.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        let now = Boot::now();
        let deadline = self.deadline().filter(|deadline| now < self.grace.term_at(*deadline));
        let lost = || Failure::failed(format!("{}: lost before the command was started", self.guard.path()));
        let deadline = deadline.ok_or_else(lost)?;
        self.publish(Some(deadline));
        Ok(())
    }

    /// Waits until the command has ended or has to. Sends it SIGTERM when the lock is about to be lost, and the signals
    /// that the front forwards.
    pub(super) async fn watch(&mut self, child: Child) -> End {
        let group = child.group();
        self.link.send(Message::Started(group.as_raw_nonzero().get()));
        let mut children = match signal(SignalKind::child()) {
            Ok(children) => children,
            Err(error) => return End::Lost(failed(error).message),
        };
        let guard = self.guard;
        let mut revoked = pin!(guard.revocation_requested());
        let mut may_be_revoked = true;
        // Set once SIGTERM was sent because of a loss. From then on recovery makes no difference.
        let mut kill_at = None;
        loop {
            if let Some(code) = child.exited() {
                return if kill_at.is_some() {
                    self.lost("the lock was about to be lost")
                } else {
                    End::Exited(code)
                };
            }
            if let Some(signal) = child.stopped() {
                self.link.send(Message::Stopped(signal));
            }
            let deadline = self.deadline();
            self.publish(deadline);
            let wake_at = kill_at.or(deadline.map(|deadline| self.grace.term_at(deadline)));
            tokio::select! {
                biased;
                () = self.alarm.at(wake_at.unwrap_or(Boot::from_nanos(0))), if wake_at.is_some() => {
                    let now = Boot::now();
                    match self.deadline() {
                        _ if kill_at.is_some() => return self.lost("no server answered in time"),
                        Some(deadline) if now < self.grace.term_at(deadline) => {}
                        Some(deadline) if now < self.grace.kill_at(deadline) => {
                            end(child);
                            kill_at = Some(self.grace.kill_at(deadline));
                            self.log.say(format!("{}: no server answers; the command got SIGTERM", guard.path()));
                        }
                        _ => return self.lost("no server answered in time"),
                    }
                }
                loss = guard.lost() => return End::Lost(loss.to_string()),
                message = self.link.receive() => match message {
                    Some(Message::Signal(number)) => {
                        if let Some(signal) = Signal::from_named_raw(number) {
                            group::signal(group, signal);
                        }
                    }
                    Some(Message::Ack) => self.is_received = true,
                    Some(Message::Ask) => (self.published, self.is_received) = (None, true),
                    Some(_) => {}
                    None => return End::FrontGone,
                },
                asked = &mut revoked, if may_be_revoked => {
                    may_be_revoked = false;
                    if asked.is_ok() {
                        end(child);
                        self.log.say(format!("{}: asked to release the lock; the command got SIGTERM", guard.path()));
                    }
                }
                _ = children.recv() => {}
                () = sleep(self.tick) => {}
            }
        }
    }

    /// Tells the front that the command's group was killed.
    pub(super) fn killed(&mut self, end: &End) {
        self.link.send(if matches!(end, End::Lost(_)) { Message::Lost } else { Message::Ended });
    }

    fn lost(&self, why: &str) -> End {
        End::Lost(format!("{}: {why}", self.guard.path()))
    }

    /// The session's deadline on the boot-time clock.
    fn deadline(&mut self) -> Option<Boot> {
        self.session.current().deadline.map(|deadline| self.sleeps.translate(deadline))
    }

    fn publish(&mut self, deadline: Option<Boot>) {
        let Some(deadline) = deadline.filter(|_| self.is_received && deadline != self.published) else {
            return;
        };
        self.link.send(Message::Deadline(self.grace.front_kills_at(deadline).as_nanos()));
        (self.published, self.is_received) = (Some(deadline), false);
    }
}

/// Asks a command to end. One that is stopped has to go on for that.
fn end(child: Child) {
    group::signal(child.group(), Signal::TERM);
    group::signal(child.group(), Signal::CONT);
}

fn failed(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot watch the command: {error}"))
}
