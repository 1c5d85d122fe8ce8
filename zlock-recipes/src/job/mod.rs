//! Jobs that run once per tick on a fleet: [`RecurringJob`], and the schedules that name the ticks.

mod clock;
#[cfg(feature = "cron")]
mod cron;
mod decide;
mod every;
mod job_run;
mod missed;
mod outcome;
mod past_run;
mod record;
mod recurring;
mod reports;
mod run_state;
mod schedule;
mod tick;

pub(crate) use every::{Ticks, settled};

pub use clock::{Clock, SystemClock};
#[cfg(feature = "cron")]
pub use cron::Cron;
pub use job_run::JobRun;
pub use missed::Missed;
pub use outcome::{JobContext, Outcome};
pub use past_run::PastRun;
pub use record::Run;
pub use recurring::RecurringJob;
pub use run_state::RunState;
pub use schedule::{Interval, Schedule, schedule_fn};
pub use tick::Tick;
