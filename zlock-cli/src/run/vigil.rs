//! When the front has to kill the command in place of the keeper: a pure decision, so that it can be tested.

use std::time::Duration;

use super::clock::Boot;

/// The least time that the keeper has to answer.
const LEAST: Duration = Duration::from_millis(10);

/// The time that the keeper has to answer if the front was stopped, or not scheduled, from before it had to ask until after
/// the time that it knows.
const LATE_ANSWER: Duration = Duration::from_secs(1);

/// What the front has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Wait until [`Vigil::wake_at`], or until the keeper says something.
    Wait,
    /// Ask the keeper for the time.
    Ask,
    /// Kill the command, and the keeper.
    Kill,
}

/// The watch that the front keeps over the keeper.
///
/// The keeper has said until when it will have killed the command. The front asks long before that, and kills at that time
/// unless it knows a later one. All times are absolute: a front that is scheduled late gives nobody more time.
///
/// A front that slept through the time to ask cannot know whether the keeper lives. If the keeper is stopped, it does not
/// wait. Otherwise it asks once: a keeper that runs ends the command by itself, and a healthy command must not die because
/// the front was stopped by Ctrl-Z.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vigil {
    kill_at: Boot,
    wake_at: Boot,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The time to ask is `wake_at`.
    Idle,
    /// The answer must be here at `wake_at`, which is the time to kill.
    Asked,
    /// The same, and the time to kill had passed when the front asked.
    AskedLate,
}

impl Vigil {
    /// The keeper has said when the command is to be killed.
    pub(super) fn new(now: Boot, kill_at: Boot) -> Self {
        let quarter = now.until(kill_at) / 4;
        if kill_at > now && quarter < LEAST {
            // The keeper was alive a moment ago, knows this time, and would have been first.
            return Vigil { kill_at, wake_at: kill_at, state: State::Asked };
        }
        Vigil { kill_at, wake_at: now.plus(quarter), state: State::Idle }
    }

    /// The keeper has said so again.
    pub(super) fn heard(&mut self, now: Boot, kill_at: Boot) {
        let is_refused = self.state == State::AskedLate && kill_at <= now;
        *self = if is_refused {
            Vigil { kill_at, wake_at: now, state: State::Asked }
        } else {
            Vigil::new(now, kill_at)
        };
    }

    /// When to look again.
    pub(super) fn wake_at(&self) -> Boot {
        self.wake_at
    }

    /// Decides. Everything that the keeper has sent must have been read.
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
        // The same time once more: it stays, and the front asks more and more often, but not without end.
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
        // It asked a little late, or wakes late when there was no answer.
        let mut vigil = Vigil::new(at(0), at(1000));
        assert_eq!((vigil.decide(at(990), unread), vigil.wake_at()), (Duty::Ask, at(1000)));
        assert_eq!(vigil.decide(at(5000), unread), Duty::Kill);
    }

    #[test]
    fn a_front_that_slept_through_it_asks_once() {
        let slept = || Vigil::new(at(0), at(1000));
        // A keeper that is stopped is not asked.
        assert_eq!(slept().decide(at(6000), || true), Duty::Kill);
        // One that says nothing.
        let mut vigil = slept();
        assert_eq!((vigil.decide(at(6000), || false), vigil.wake_at()), (Duty::Ask, at(7000)));
        assert_eq!(vigil.decide(at(6999), unread), Duty::Wait);
        assert_eq!(vigil.decide(at(7000), unread), Duty::Kill);
        // One that knows nothing better.
        let mut vigil = slept();
        vigil.decide(at(6000), || false);
        vigil.heard(at(6010), at(1100));
        assert_eq!(vigil.decide(at(6010), unread), Duty::Kill);
        // One that is well.
        let mut vigil = slept();
        vigil.decide(at(6000), || false);
        vigil.heard(at(6010), at(7010));
        assert_eq!((vigil.decide(at(6010), unread), vigil.wake_at()), (Duty::Wait, at(6260)));
        // An answer from before the sleep says nothing about now.
        let mut vigil = slept();
        vigil.decide(at(250), unread);
        vigil.heard(at(6000), at(1200));
        assert_eq!(vigil.decide(at(6000), || false), Duty::Ask);
    }
}
