//! A job that runs once per tick, on machines whose clocks differ.
//!
//! The oracle reads the record as text, and compares each change of it with the queue of the job's lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};
use zlock::job::{Clock, JobContext, Outcome, Tick};
use zlock::{FencingToken, LockPath};

use super::plan::JobPlan;
use super::polls::cut;
use super::record::Seen;
use super::worker::Worker;
use super::world::World;

/// The number of the worker that runs the job, in each process.
pub(crate) const MACHINE: u64 = 7;

/// The time at the beginning of each run, by a clock that is right.
const BEGINNING: Duration = Duration::from_secs(1_764_000_000);

const YEAR: Duration = Duration::from_secs(365 * 86_400);

pub(crate) fn path() -> LockPath {
    LockPath::new("/app/job").expect("a path")
}

/// The path of the record.
fn record_path() -> LockPath {
    LockPath::new("/app/job.job").expect("a path")
}

/// The clock of a machine.
#[derive(Debug)]
struct Skewed {
    began: Instant,
    ahead: Duration,
}

impl Clock for Skewed {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + BEGINNING + self.began.elapsed() + self.ahead
    }
}

impl World {
    pub(crate) fn record(&self) -> Option<Seen> {
        self.store.value(&record_path()).and_then(|data| Seen::of(&data))
    }

    /// Compares the record with the queue before each request. The last one was the only one that can have changed the record.
    pub(crate) fn look_at_job(&self) {
        if self.plan.job.is_none() {
            return;
        }
        let record = self.record();
        let queue: BTreeSet<_> = self.places(&path()).iter().map(|place| place.number).collect();
        let (before, had) = {
            let mut state = self.lock();
            if let Some(record) = record.as_ref().filter(|record| record.state == "done") {
                state.jobs.done.insert(record.tick);
            }
            let before = std::mem::replace(&mut state.jobs.record, record.clone());
            (before, std::mem::replace(&mut state.jobs.queue, queue))
        };
        if let Some(record) = record.filter(|record| Some(record) != before.as_ref()) {
            self.note(|| format!("the record is {record:?}"));
            if !had.contains(&record.token) {
                self.fail("written without the lock", || {
                    format!("{record:?} after {before:?}, queue {had:?}")
                });
            }
        }
    }

    /// Records the beginning of an attempt.
    fn attempt_begins(&self, plan: JobPlan, client: usize, context: &JobContext) {
        let (tick, token, attempt) = (context.tick(), context.fencing_token(), context.attempt());
        self.note(|| format!("c{client} RUNS {tick}, attempt {attempt}, #{token}"));
        let latest = BEGINNING + self.began.elapsed() + Duration::from_millis(plan.skew) + plan.period / 2;
        let (others, last, done, begun, highest) = {
            let mut state = self.lock();
            state.counts.runs += 1;
            let jobs = &mut state.jobs;
            let others: Vec<_> = jobs.running.values().cloned().collect();
            let last = jobs.begun.keys().next_back().copied();
            let begun = jobs.begun.entry(tick).or_default();
            *begun += 1;
            let begun = *begun;
            jobs.running.insert(token, (client, context.clone()));
            (others, last, jobs.done.contains(&tick), begun, jobs.highest.replace(token))
        };
        // A client whose session an operator has ended does not know it yet.
        let knows = |other: usize| !(self.plan.operator && self.excuses(other).0);
        let mut others = others.iter().filter(|(other, context)| knows(*other) && context.is_held());
        if let Some((other, running)) = others.next() {
            self.fail("two runs", || format!("c{client} runs {tick}, and c{other} runs {}", running.tick()));
        }
        if done {
            self.fail("ran again", || format!("c{client} runs {tick}, which is done"));
        }
        // One whose session an operator has ended may begin without the lock. It cannot write any more.
        let is_there = self.places(&path()).iter().any(|place| place.number == token.number());
        if !is_there && !knows(client) {
            return;
        }
        if last.is_some_and(|last| last > tick) {
            self.fail("an older tick", || format!("c{client} runs {tick} after {last:?}"));
        }
        if begun > plan.attempts || attempt > plan.attempts || attempt < begun {
            self.fail("attempts", || {
                format!("{begun} of {} begun, the last one has {attempt}", plan.attempts)
            });
        }
        if highest.is_some_and(|highest| highest >= token) {
            self.fail("fencing", || format!("#{token} of {tick} after {highest:?}"));
        }
        if tick.time() > UNIX_EPOCH + latest {
            self.fail("a tick from the future", || format!("c{client} runs {tick}"));
        }
    }

    /// Checks that the job was run at all, if there was no fault.
    pub(crate) fn check_progress(&self) {
        let Some(plan) = self.plan.job else { return };
        let (ticks, faults) = {
            let state = self.lock();
            (state.jobs.begun.len() as u128, state.counts.faults)
        };
        let least = self.plan.length.as_millis() / plan.period.as_millis() / 4;
        if faults == 0 && ticks < least {
            self.fail("no progress", || format!("{ticks} ticks began, of at least {least}"));
        }
    }

    /// Removes what stays of the job by design.
    pub(crate) fn forget_job(&self) {
        if self.plan.job.is_some() {
            self.store.remove_value(&record_path());
        }
    }
}

/// An attempt under way.
struct Inside {
    world: Arc<World>,
    token: FencingToken,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let before = self.world.lock().jobs.running.remove(&self.token);
        // Not under the lock: the last handle of a client ends its session.
        drop(before);
    }
}

impl Worker {
    /// Calls the job with the tick that is nearest by this machine's clock, again and again.
    pub(crate) async fn run_jobs(mut self, plan: JobPlan) {
        let is_ahead = plan.ahead && self.process.number() == 0;
        let ahead = if is_ahead { YEAR } else { self.random.millis(plan.skew + 1) };
        let clock = Arc::new(Skewed { began: self.world.began, ahead });
        let period = plan.period.as_millis() as u64;
        while self.world.plan.shutdown || !self.world.is_over() {
            let (present, world) = (self.process.present(), self.world.clone());
            // Nothing tells a job that has never run which clock is wrong.
            if is_ahead && world.lock().jobs.record.is_none() {
                sleep(plan.period / 4).await;
                continue;
            }
            let job = present.client.recurring_job(path()).expect("it has values");
            let job = job.attempts(plan.attempts).period(plan.period).clock(clock.clone());
            let tick = Tick::nearest(clock.now(), plan.period).expect("a period");
            let (client, takes, fails) =
                (present.number, self.random.millis(period / 4), self.random.once_in(4));
            let run = job.run(tick, async |context| {
                let _inside = Inside { world: world.clone(), token: context.fencing_token() };
                world.attempt_begins(plan, client, &context);
                sleep(takes).await;
                if fails { Err("as planned") } else { Ok(()) }
            });
            let cut_after = self.random.within(1, 20);
            let outcome = if self.random.once_in(8) { cut(cut_after, run).await } else { Some(run.await) };
            world.note(|| format!("c{client} at {tick}: {outcome:?}"));
            match outcome {
                Some(Ok(Outcome::Ran(Ok(())))) => {
                    world.lock().jobs.done.insert(tick);
                }
                // The server may know of the end of the session before the client does.
                Some(Err(error)) if error.is_lock_lost() && world.excuses(client) != (false, false) => {}
                Some(Err(error)) => self.check_error(client, &error),
                _ => {}
            }
            sleep(self.random.millis(period)).await;
        }
    }
}
