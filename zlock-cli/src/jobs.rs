//! `zlock jobs`: lists the jobs below a path.

use std::collections::VecDeque;
use std::mem::replace;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use zlock::job::{PastRun, Run, RunState, Tick};
use zlock::{Client, ErrorKind, LockPath};

use crate::args::{Below, Jobs};
use crate::exit::{Failure, say};
use crate::output::{clean, json_text, now, print_row, printable, write};
use crate::store::{Count, Target};

/// The number of records that are requested at the same time.
const IN_FLIGHT: usize = 64;

pub(crate) async fn jobs(args: Jobs) -> Result<ExitCode, Failure> {
    match &args.below.prefix {
        Some(path) if args.history => history(&args.below, path).await,
        _ => list(args.below).await,
    }
}

/// Returns the tick, which runs for a key do not have.
fn named(tick: Tick) -> Option<Tick> {
    Some(tick).filter(|tick| tick.millis() > 0)
}

/// Returns a time as JSON has it.
fn time(tick: Option<Tick>) -> Option<String> {
    tick.map(|tick| tick.to_string())
}

/// Returns a time as a table has it.
fn cell(tick: Option<Tick>) -> String {
    time(tick).unwrap_or_else(|| "-".to_owned())
}

/// Shows the last runs of one job.
async fn history(args: &Below, path: &LockPath) -> Result<ExitCode, Failure> {
    const TITLES: [&str; 6] = ["TICK", "STATE", "ATTEMPT", "BEGAN", "ENDED", "BY"];
    const WIDTHS: [usize; 6] = [20, 7, 7, 24, 24, 0];

    let store = Target::of(&args.store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let job = read(&client, path).await?;
    let _ = client.close().await;
    let Some(job) = job else { return Err(Failure::failed(format!("{path}: no job has run here"))) };
    let runs = job.runs();
    if args.format.json {
        let runs: Vec<_> = runs.iter().map(|(state, run)| past_json(state, run)).collect();
        write(json_text(&json!({ "job": path.as_str(), "runs": runs })).as_bytes())?;
        write(b"\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    print_row(&TITLES.map(str::to_owned), WIDTHS)?;
    for (state, run) in runs {
        let tick = named(run.tick);
        let (attempt, by) = (run.attempt.to_string(), printable(run.by.as_bytes()));
        let row = [cell(tick), state.to_owned(), attempt, cell(Some(run.began)), cell(run.ended), by];
        print_row(&row, WIDTHS)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn past_json(state: &str, run: &PastRun) -> Value {
    json!({
        "tick": time(named(run.tick)),
        "state": state,
        "attempt": run.attempt,
        "began": time(Some(run.began)),
        "ended": time(run.ended),
        "by": run.by,
    })
}

async fn list(args: Below) -> Result<ExitCode, Failure> {
    let target = Target::of(&args.store)?;
    // Connecting first: its errors say what is wrong with each server.
    let store = target.connect().await?;
    let client = Client::new(store.backend.clone());
    let mut list = List {
        is_json: args.format.json,
        has_begun: false,
        reads: VecDeque::new(),
        others: Count::default(),
        unread: Count::default(),
    };
    let unread = store
        .each_job(args.prefix.as_ref(), async |path| {
            list.reads.push_back(Read::new(path, &client));
            if list.reads.len() == IN_FLIGHT { list.next().await } else { Ok(()) }
        })
        .await?;
    while !list.reads.is_empty() {
        list.next().await?;
    }
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    list.end(&unread)?;
    Ok(ExitCode::SUCCESS)
}

/// A job, and the request for its record.
struct Read {
    path: LockPath,
    job: JoinHandle<zlock::Result<Option<Job>>>,
}

impl Read {
    fn new(path: LockPath, client: &Client) -> Self {
        let (client, of) = (client.clone(), path.clone());
        Read { path, job: tokio::spawn(async move { read(&client, &of).await }) }
    }
}

async fn read(client: &Client, path: &LockPath) -> zlock::Result<Option<Job>> {
    let Some(run) = client.recurring_job(path)?.last().await? else { return Ok(None) };
    let state = match run.state {
        RunState::Started if client.mutex(path)?.participants().await?.is_empty() => "died",
        RunState::Started => "running",
        state => state.as_str(),
    };
    Ok(Some(Job { run, state }))
}

/// A job with its last run.
struct Job {
    run: Run,
    state: &'static str,
}

impl Job {
    /// Returns `true` if the job has not succeeded for two periods, or since its first run if it never has. `None` if its period is
    /// not known.
    fn is_overdue(&self, now: SystemTime) -> Option<bool> {
        let last = self.run.last_done.unwrap_or(self.run.first);
        let late = now.duration_since(last.time()).unwrap_or(Duration::ZERO);
        self.run.period.map(|period| late > period.saturating_mul(2))
    }

    /// Returns the last runs with their states, the latest first, with the one that has not ended.
    fn runs(&self) -> Vec<(&'static str, PastRun)> {
        let past = self.run.history.iter().map(|run| match run.state {
            RunState::Started => ("died", run.clone()),
            state => (state.as_str(), run.clone()),
        });
        let last = (self.run.state == RunState::Started).then(|| (self.state, self.run.unended()));
        last.into_iter().chain(past).collect()
    }

    /// Returns the tick, which runs for a key do not have.
    fn tick(&self) -> Option<Tick> {
        named(self.run.tick)
    }

    fn row(&self, path: &LockPath) -> [String; 7] {
        let overdue = match self.is_overdue(now()) {
            None => "-",
            Some(false) => "no",
            Some(true) => "yes",
        };
        let by = printable(self.run.by.as_bytes());
        [
            self.state.to_owned(),
            cell(self.tick()),
            cell(Some(self.run.since)),
            cell(self.run.next),
            overdue.to_owned(),
            clean(path.as_str()),
            by,
        ]
    }

    fn to_json(&self, path: &LockPath) -> Value {
        let run = &self.run;
        json!({
            "job": path.as_str(),
            "state": self.state,
            "tick": time(self.tick()),
            "attempt": run.attempt,
            "token": run.fencing_token.number(),
            "by": run.by,
            "since": time(Some(run.since)),
            "last_success": time(run.last_done.filter(|tick| tick.millis() > 0)),
            "next": time(run.next),
            "period_seconds": run.period.map(|period| period.as_secs_f64()),
            "overdue": self.is_overdue(now()),
            "doubted": run.doubted.iter().map(Tick::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Prints jobs as they are found. Prints nothing before the first answer, which may be an error.
struct List {
    is_json: bool,
    has_begun: bool,
    reads: VecDeque<Read>,
    /// Values with the name of a record, which are none.
    others: Count,
    /// Records that may not be read.
    unread: Count,
}

impl List {
    const TITLES: [&str; 7] = ["STATE", "TICK", "SINCE", "NEXT", "OVERDUE", "JOB", "BY"];
    /// The widths of the columns, since the rows are not known yet.
    const WIDTHS: [usize; 7] = [7, 20, 24, 20, 7, 24, 0];

    /// Prints the job whose record was requested first.
    async fn next(&mut self) -> Result<(), Failure> {
        let Some(Read { path, job }) = self.reads.pop_front() else { return Ok(()) };
        match job.await.map_err(|error| Failure::failed(error.to_string()))? {
            Ok(Some(job)) => self.row(&path, &job),
            Ok(None) => Ok(()),
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                self.others.add(format!("{path}.job"));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotAuthorized => {
                self.unread.add(format!("{path}.job"));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn row(&mut self, path: &LockPath, job: &Job) -> Result<(), Failure> {
        let is_first = self.begin()?;
        if !self.is_json {
            return print_row(&job.row(path), Self::WIDTHS);
        }
        let separator = if is_first { "" } else { "," };
        write(format!("{separator}{}", json_text(&job.to_json(path))).as_bytes())
    }

    fn end(mut self, unread: &Count) -> Result<(), Failure> {
        self.begin()?;
        if self.is_json {
            let (unread, others) = (unread.total + self.unread.total, self.others.total);
            write(format!("],\"unreadable\":{unread},\"other_values\":{others}}}\n").as_bytes())?;
        }
        for unread in [unread, &self.unread].into_iter().filter(|unread| unread.total > 0) {
            say(&format!("paths that may not be read are left out: {unread}"));
        }
        if self.others.total > 0 {
            say(&format!(
                "values that are not records of jobs, or of a later version, are left out: {}",
                self.others
            ));
        }
        Ok(())
    }

    /// Prints what comes before the first job. Returns `true` the first time.
    fn begin(&mut self) -> Result<bool, Failure> {
        if replace(&mut self.has_begun, true) {
            return Ok(false);
        }
        if self.is_json {
            write(b"{\"jobs\":[")?
        } else {
            print_row(&Self::TITLES.map(str::to_owned), Self::WIDTHS)?
        }
        Ok(true)
    }
}
