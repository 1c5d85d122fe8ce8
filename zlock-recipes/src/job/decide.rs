//! The decision about a tick, from the record alone.

use crate::job::record::{Run, RunState};
use crate::job::tick::Tick;

/// What the record of a job says of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It may run as this attempt. If the record says that a run has started, its holder must be gone.
    Claim(u32),
    /// It has run, or a later one has begun.
    Ran,
    /// Its last attempt has begun, and is running if its holder is not gone.
    LastStarted,
    /// Its last attempt has failed.
    LastFailed,
}

/// Decides about `tick`, which gets up to `attempts` attempts.
pub(crate) fn decide(record: Option<&Run>, tick: Tick, attempts: u32) -> Decision {
    let Some(run) = record.filter(|run| run.tick >= tick) else { return Decision::Claim(1) };
    match run.state {
        _ if run.tick > tick => Decision::Ran,
        RunState::Done => Decision::Ran,
        _ if run.attempt < attempts => Decision::Claim(run.attempt + 1),
        RunState::Started => Decision::LastStarted,
        RunState::Failed => Decision::LastFailed,
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::FencingToken;

    use super::Decision::*;
    use super::RunState::*;
    use super::*;

    #[test]
    fn a_tick_runs_once_and_as_often_as_attempts_allow_if_it_does_not_end() {
        let tick = Tick::from_millis;
        assert_eq!(decide(None, tick(7), 1), Claim(1));
        for (of, state, attempt, attempts, decision) in [
            (6, Started, 1, 1, Claim(1)),
            (6, Done, 1, 1, Claim(1)),
            (6, Failed, 3, 3, Claim(1)),
            (7, Done, 1, 3, Ran),
            (7, Started, 1, 1, LastStarted),
            (7, Failed, 1, 1, LastFailed),
            (7, Started, 1, 3, Claim(2)),
            (7, Failed, 2, 3, Claim(3)),
            (7, Started, 3, 3, LastStarted),
            (7, Failed, 4, 3, LastFailed),
            (8, Started, 1, 9, Ran),
            (8, Failed, 1, 9, Ran),
            (8, Done, 1, 9, Ran),
        ] {
            let mut run = Run::claim(None, tick(of), attempt, FencingToken::new(1), "", tick(of));
            run.state = state;
            assert_eq!(
                decide(Some(&run), tick(7), attempts),
                decision,
                "{of} {state} {attempt} of {attempts}"
            );
        }
    }
}
