//! The boot-time clock, which includes the time that the machine sleeps, and an alarm on it.
//!
//! The library's deadlines use a clock that stands still during a sleep. The servers' clocks do not, so without this
//! translation a command could outlive its lock by the length of the sleep.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// An instant on the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Boot(Duration);

impl Boot {
    pub(super) fn now() -> Self {
        #[cfg(target_os = "linux")]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(clock);
        Boot(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    pub(super) fn from_nanos(nanos: u64) -> Self {
        Boot(Duration::from_nanos(nanos))
    }

    pub(super) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn plus(self, time: Duration) -> Self {
        Boot(self.0.saturating_add(time))
    }

    pub(super) fn minus(self, time: Duration) -> Self {
        Boot(self.0.saturating_sub(time))
    }

    /// Returns the time until a later instant, or zero if it has passed.
    pub(super) fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// Translates session deadlines to the boot-time clock.
///
/// A deadline is computed from the time at which a heartbeat was sent. If the machine slept after that, the deadline comes
/// sooner by the length of the sleep, which only the boot-time clock shows. So a sleep may be added to deadlines only once
/// none of them can follow from a heartbeat sent before it: one session timeout after the sleep was noticed.
#[derive(Debug)]
pub(super) struct Sleeps {
    began: (Boot, Instant),
    timeout: Duration,
    /// The total length of all noticed sleeps, and when the last one was noticed.
    slept: Duration,
    noticed: Instant,
    /// The total length of the sleeps that are added to deadlines.
    settled: Duration,
}

impl Sleeps {
    /// Starts the translation for a session with this timeout.
    pub(super) fn new(timeout: Duration) -> Self {
        let (boot, now) = both();
        Self::starting(boot, now, timeout)
    }

    fn starting(boot: Boot, now: Instant, timeout: Duration) -> Self {
        Sleeps { began: (boot, now), timeout, slept: Duration::ZERO, noticed: now, settled: Duration::ZERO }
    }

    /// Returns the deadline on the boot-time clock. The result may be too early, but never too late.
    pub(super) fn translate(&mut self, deadline: Instant) -> Boot {
        let (boot, now) = both();
        self.translate_at(deadline, boot, now)
    }

    fn translate_at(&mut self, deadline: Instant, boot: Boot, now: Instant) -> Boot {
        let (began, since) = self.began;
        let slept = boot.0.saturating_sub(began.plus(now - since).0);
        if slept > self.slept {
            (self.slept, self.noticed) = (slept, now);
        }
        if now >= self.noticed + self.timeout {
            self.settled = self.slept;
        }
        began.plus(deadline - since).plus(self.settled)
    }
}

/// Reads both clocks. A pause between the two readings makes a sleep look shorter, never longer.
fn both() -> (Boot, Instant) {
    let boot = Boot::now();
    (boot, Instant::now())
}

/// Waits for instants on the boot-time clock.
#[derive(Debug)]
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Alarm {
    #[allow(deprecated, reason = "sound for a descriptor that is owned; what replaces it needs tokio 1.53")]
    pub(super) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Alarm { timer: tokio::io::unix::AsyncFd::new(timer)? })
    }

    /// Waits until this instant. Completes as soon as the machine wakes if it slept past the instant.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub(super) async fn at(&self, when: Boot) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        // A value of zero would disarm the timer.
        let when = when.max(Boot::from_nanos(1));
        let value = Timespec {
            tv_sec: when.0.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: when.0.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        let armed = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once).is_ok();
        while Boot::now() < when {
            match self.timer.readable().await {
                Ok(mut ready) if armed => {
                    // An expiry of an earlier call.
                    let _ = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
                }
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    #[allow(clippy::unnecessary_wraps, reason = "the same signature on all systems")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Alarm {})
    }

    pub(super) async fn at(&self, when: Boot) {
        while Boot::now() < when {
            tokio::time::sleep(Boot::now().until(when)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_sleep_brings_deadlines_nearer_until_all_heartbeats_are_newer() {
        let (boot, now) = (Boot(1000 * S), Instant::now());
        let mut sleeps = Sleeps::starting(boot, now, 10 * S);
        let left =
            |deadline: Boot, at: u32| i64::try_from(deadline.0.as_secs()).unwrap() - i64::from(1000 + at);
        // Awake for 5 s: 10 s remain.
        assert_eq!(left(sleeps.translate_at(now + 15 * S, boot.plus(5 * S), now + 5 * S), 5), 10);
        // After 30 s of sleep, this deadline has passed, and so has one from a heartbeat that was answered after the sleep.
        assert_eq!(left(sleeps.translate_at(now + 15 * S, boot.plus(36 * S), now + 6 * S), 36), -21);
        assert_eq!(left(sleeps.translate_at(now + 16 * S, boot.plus(37 * S), now + 7 * S), 37), -21);
        // After a session timeout, all deadlines follow from heartbeats sent after the sleep.
        assert_eq!(left(sleeps.translate_at(now + 25 * S, boot.plus(46 * S), now + 16 * S), 46), 9);
        // The same for a second sleep.
        assert_eq!(left(sleeps.translate_at(now + 27 * S, boot.plus(50 * S), now + 17 * S), 50), 7);
        assert_eq!(left(sleeps.translate_at(now + 37 * S, boot.plus(60 * S), now + 27 * S), 60), 10);
    }

    #[test]
    fn a_pause_between_two_readings_gives_no_time_away() {
        let (boot, now) = (Boot(1000 * S), Instant::now());
        let mut sleeps = Sleeps::starting(boot, now, 10 * S);
        assert_eq!(sleeps.translate_at(now + 20 * S, boot.plus(5 * S), now + 6 * S), boot.plus(20 * S));
        assert_eq!(sleeps.translate_at(now + 20 * S, boot.plus(7 * S), now + 7 * S), boot.plus(20 * S));
    }

    #[tokio::test]
    async fn an_alarm_rings_at_its_time_and_again() {
        let alarm = Alarm::new().unwrap();
        for millis in [20, 0, 30] {
            let when = Boot::now().plus(Duration::from_millis(millis));
            alarm.at(when).await;
            assert!(Boot::now() >= when);
        }
        let far = alarm.at(Boot::now().plus(60 * S));
        assert!(tokio::time::timeout(Duration::from_millis(30), far).await.is_err());
    }
}
