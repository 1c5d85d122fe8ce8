//! When the front has to kill the command in place of the keeper: a pure decision, so that it can be tested.

use std::time::Duration;

use super::clock::Boot;

/// The minimum time for the keeper to reply.
const LEAST: Duration = Duration::from_millis(10);

/// The time for the keeper to reply if the front was stopped, or not scheduled, until after the time to kill.
const LATE_ANSWER: Duration = Duration::from_secs(1);

/// The next step for the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Wait until [`Vigil::wake_at`], or for a message from the keeper.
    Wait,
    /// Ask the keeper for the time to kill.
    Ask,
    /// Kill the command and the keeper.
    Kill,
}

/// Decides when the front replaces a keeper that hangs.
///
/// The keeper announces a time by which it will have killed the command, if it must. The front asks for a later time well
/// in advance, and kills the command if it knows none. All times are absolute: a front that is scheduled late grants no
/// extra time.
///
/// A front that was paused past that time cannot know whether the keeper is alive. If the keeper is stopped, the front
/// kills at once. Otherwise it asks once more: a running keeper stops the command by itself, and a healthy command must
/// not die because Ctrl-Z stopped the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vigil {
    kill_at: Boot,
    wake_at: Boot,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The front asks at `wake_at`.
    Idle,
    /// The reply must arrive before `wake_at`, the time to kill.
    Asked,
    /// Like `Asked`, but the time to kill had passed when the front asked.
    AskedLate,
}

impl Vigil {
    /// Starts with the first time that the keeper announced.
    pub(super) fn new(now: Boot, kill_at: Boot) -> Self {
        let quarter = now.until(kill_at) / 4;
        if kill_at > now && quarter < LEAST {
            // The keeper was alive a moment ago, and will act on this time before the front does.
            return Vigil { kill_at, wake_at: kill_at, state: State::Asked };
        }
        Vigil { kill_at, wake_at: now.plus(quarter), state: State::Idle }
    }

    /// Handles a further announcement of the keeper.
    pub(super) fn heard(&mut self, now: Boot, kill_at: Boot) {
        let is_refused = self.state == State::AskedLate && kill_at <= now;
        *self = if is_refused {
            Vigil { kill_at, wake_at: now, state: State::Asked }
        } else {
            Vigil::new(now, kill_at)
        };
    }

    /// Returns when to decide again.
    pub(super) fn wake_at(&self) -> Boot {
        self.wake_at
    }

    /// Decides on the next step. All messages from the keeper must have been read.
    pub(super) fn decide(&mut self, now: Boot, keeper_is_stopped: impl FnOnce() -> bool) -> Duty {
        if now < self.wake_at {
            return Duty::Wait;
        }
        match self.state {
            State::Asked | State::AskedLate => Duty::Kill,
            State::Idle if now < self.kill_at => {
                (self.wake_at, self.state) = (self.kill_at, State::Asked);
                Duty::Ask
            }
            State::Idle if keeper_is_stopped() => Duty::Kill,
            State::Idle => {
                (self.wake_at, self.state) = (now.plus(LATE_ANSWER), State::AskedLate);
                Duty::Ask
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Boot {
        Boot::from_nanos(1_000_000_000_000 + millis * 1_000_000)
    }

    fn unread() -> bool {
        panic!("the keeper's state does not matter")
    }

    #[test]
    fn the_front_asks_long_before_it_kills() {
        let mut vigil = Vigil::new(at(0), at(1000));
        assert_eq!(vigil.wake_at(), at(250));
        assert_eq!(vigil.decide(at(249), unread), Duty::Wait);
        assert_eq!(vigil.decide(at(250), unread), Duty::Ask);
        assert_eq!((vigil.decide(at(999), unread), vigil.wake_at()), (Duty::Wait, at(1000)));
        assert_eq!(vigil.decide(at(1000), unread), Duty::Kill);
    }

    #[test]
    fn an_answer_moves_the_time() {
        let mut vigil = Vigil::new(at(0), at(1000));
        vigil.decide(at(250), unread);
        vigil.heard(at(260), at(1200));
        assert_eq!((vigil.decide(at(1000 - 700), unread), vigil.wake_at()), (Duty::Wait, at(495)));
        // If the time stays the same, the front asks more and more often, but not endlessly.
        let mut asked = 0;
        for now in 300..1200 {
            if vigil.decide(at(now), unread) == Duty::Ask {
                asked += 1;
                vigil.heard(at(now), at(1200));
            }
        }
        assert!((8..20).contains(&asked), "{asked}");
        assert_eq!(vigil.decide(at(1200), unread), Duty::Kill);
    }

    #[test]
    fn a_front_that_is_late_gives_no_time_away() {
        // It asks late, or wakes late without a reply.
        let mut vigil = Vigil::new(at(0), at(1000));
        assert_eq!((vigil.decide(at(990), unread), vigil.wake_at()), (Duty::Ask, at(1000)));
        assert_eq!(vigil.decide(at(5000), unread), Duty::Kill);
    }

    #[test]
    fn a_front_that_slept_through_it_asks_once() {
        let slept = || Vigil::new(at(0), at(1000));
        // A keeper that is stopped is not asked.
        assert_eq!(slept().decide(at(6000), || true), Duty::Kill);
        // One that does not reply.
        let mut vigil = slept();
        assert_eq!((vigil.decide(at(6000), || false), vigil.wake_at()), (Duty::Ask, at(7000)));
        assert_eq!(vigil.decide(at(6999), unread), Duty::Wait);
        assert_eq!(vigil.decide(at(7000), unread), Duty::Kill);
        // One that replies with a time that has passed.
        let mut vigil = slept();
        vigil.decide(at(6000), || false);
        vigil.heard(at(6010), at(1100));
        assert_eq!(vigil.decide(at(6010), unread), Duty::Kill);
        // One that is healthy.
        let mut vigil = slept();
        vigil.decide(at(6000), || false);
        vigil.heard(at(6010), at(7010));
        assert_eq!((vigil.decide(at(6010), unread), vigil.wake_at()), (Duty::Wait, at(6260)));
        // A reply from before the pause proves nothing.
        let mut vigil = slept();
        vigil.decide(at(250), unread);
        vigil.heard(at(6000), at(1200));
        assert_eq!(vigil.decide(at(6000), || false), Duty::Ask);
    }
}
