//! Plans when to stop a command, so that it is dead before another client can hold the lock.

use std::time::Duration;

use zlock::SessionTerms;

use super::clock::Boot;

/// The minimum time between SIGKILL and the deadline.
const MIN_RESERVE: Duration = Duration::from_millis(100);

/// The times before a lock's deadline at which its command is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    kill_after: Duration,
    reserve: Duration,
}

impl Grace {
    /// Plans for a session with these terms.
    ///
    /// # Errors
    /// Fails if less than two heartbeat intervals remain before SIGTERM: a single late heartbeat would stop a healthy
    /// command.
    pub(super) fn new(kill_after: Duration, terms: SessionTerms) -> Result<Self, String> {
        let reserve = (terms.timeout / 20).max(MIN_RESERVE);
        let needed = reserve + terms.heartbeat * 2;
        if terms.life.checked_sub(needed).is_some_and(|most| kill_after <= most) {
            return Ok(Grace { kill_after, reserve });
        }
        let timeout = terms.timeout;
        let most = terms.life.saturating_sub(needed);
        let most = Duration::from_millis(u64::try_from(most.as_millis()).unwrap_or(0));
        let advice =
            if most.is_zero() { String::new() } else { format!("--kill-after {most:?} or less, or ") };
        Err(format!(
            "--kill-after {kill_after:?} does not fit into a session of {timeout:?}: \
             use {advice}a longer ?session_timeout= in the URL, if the server grants it"
        ))
    }

    /// Returns `true` if a command may be started that is not stopped at once, given the time until the deadline.
    pub(super) fn permits_start(&self, left: Duration) -> bool {
        left > self.kill_after + self.reserve
    }

    /// Returns the time between SIGTERM and SIGKILL.
    pub(super) fn kill_after(&self) -> Duration {
        self.kill_after
    }

    /// Returns when to send SIGTERM.
    pub(super) fn term_at(&self, deadline: Boot) -> Boot {
        self.kill_at(deadline).minus(self.kill_after)
    }

    /// Returns when to send SIGKILL.
    pub(super) fn kill_at(&self, deadline: Boot) -> Boot {
        deadline.minus(self.reserve)
    }

    /// Returns when the front sends SIGKILL if the keeper has not.
    pub(super) fn front_kills_at(&self, deadline: Boot) -> Boot {
        deadline.minus(self.reserve / 4 * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn terms(timeout: u32, heartbeat: u32, life: u32) -> SessionTerms {
        SessionTerms::new(timeout * MS, heartbeat * MS, life * MS)
    }

    #[test]
    fn a_command_is_killed_before_the_deadline() {
        let grace = Grace::new(2000 * MS, terms(10_000, 1750, 7300)).unwrap();
        let deadline = Boot::from_nanos(60_000_000_000);
        assert_eq!(grace.term_at(deadline), deadline.minus(2500 * MS));
        assert!(grace.permits_start(2501 * MS) && !grace.permits_start(2500 * MS));
        assert_eq!(grace.kill_at(deadline), deadline.minus(500 * MS));
        assert_eq!(grace.front_kills_at(deadline), deadline.minus(375 * MS));
    }

    #[test]
    fn two_heartbeats_fit_before_sigterm() {
        assert!(Grace::new(1200 * MS, terms(4000, 700, 2800)).is_ok());
        let why = Grace::new(1201 * MS, terms(4000, 700, 2800)).unwrap_err();
        assert!(why.contains("--kill-after 1.201s does not fit into a session of 4s"), "{why}");
        assert!(why.contains("use --kill-after 1.2s or less, or a longer ?session_timeout="), "{why}");
        let why = Grace::new(MS, terms(500, 150, 390)).unwrap_err();
        assert!(why.contains("use a longer ?session_timeout="), "{why}");
    }
}
