//! `zlock jobs`: jobs of `zlock run` and of programs, in every state.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::convert::Infallible;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use zlock::Client;
use zlock::job::{Outcome, Tick};

use crate::support::{PidFile, outcome, zlock};

/// More than there are reads in flight.
const MANY: usize = 150;

async fn jobs(url: &str, args: &[&str]) -> Value {
    let (code, stdout, stderr) = outcome(zlock(&["jobs", "--json", "--url", url]).args(args)).await;
    assert_eq!((code, &*stderr), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

/// Runs a command as a job, and returns its exit code.
async fn run(url: &str, args: &[&str]) -> i32 {
    outcome(zlock(&["run", "--url", url]).args(args)).await.0
}

/// Leaves a job as its process does, without the command.
async fn library(client: &Client) {
    let hour = Duration::from_secs(3600);
    let tick: Tick = "2025-11-24T21:00:00Z".parse().unwrap();
    let ok = async |_context| Ok::<_, Infallible>(());
    let late = client.recurring_job("/jobs/late").unwrap().period(hour);
    assert!(late.run(tick, ok).await.is_ok());
    // It has failed again and again.
    #[allow(clippy::disallowed_methods, reason = "the command looks at the time of day")]
    let now = std::time::SystemTime::now();
    let hopeless = client.recurring_job("/jobs/hopeless").unwrap().period(hour);
    for ago in [3, 2, 1, 0] {
        let tick = Tick::at(now - ago * hour);
        assert!(matches!(
            hopeless.run(tick, async |_context| Err::<(), _>("no disk")).await,
            Ok(Outcome::Ran(Err(_)))
        ));
    }
    // It has begun, and its process does nothing any more.
    drop(client.recurring_job("/jobs/dead").unwrap().begin(tick).await.unwrap().unwrap());
    client.shared_value("/jobs/other.job").unwrap().update(|_| Some(b"no record".into())).await.unwrap();
    // By another program, with the largest numbers.
    let huge = format!(
        "zlock job 1\ntick: 9999-12-31T23:59:59Z\nstate: failed\nattempt: {}\ntoken: {}\nsince: 1970-01-01T00:00:00Z\n\
         first: 1970-01-01T00:00:00Z\nperiod: 1e19s\n",
        u32::MAX,
        u64::MAX
    );
    client.shared_value("/jobs/huge.job").unwrap().update(|_| Some(huge.clone().into())).await.unwrap();
    let many = (0..MANY).map(|n| client.recurring_job(format!("/many/{n:03}")).unwrap());
    for job in many {
        assert!(job.run(tick, ok).await.is_ok());
    }
    while client.pending_cleanups() > 0 {
        tokio::time::sleep(support::POLL).await;
    }
}

async fn are_listed(url: &str) {
    assert_eq!(jobs(url, &[]).await, json!({ "jobs": [], "unreadable": 0, "other_values": 0 }));
    let client = zlock::connect(url).await.unwrap();
    library(&client).await;
    assert_eq!(run(url, &["--tick", "1h", "jobs/report", "--", "true"]).await, 0);
    assert_eq!(run(url, &["--tick", "1h", "jobs/fails", "--", "false"]).await, 1);
    assert_eq!(run(url, &["--once", "v1.2", "jobs/migrate", "--", "true"]).await, 0);
    let file = PidFile::new();
    let script = format!("echo $$ > {file}; exec sleep 1000");
    let mut long = zlock(&["run", "--url", url, "--tick", "1h", "--shell", "jobs/long", "--", &script]);
    let long = long.stderr(Stdio::null()).spawn().unwrap();
    file.number().await;

    let (code, table, stderr) = outcome(&mut zlock(&["jobs", "--url", url, "jobs"])).await;
    assert_eq!(code, 0);
    assert!(stderr.contains("are left out: 1: /jobs/other.job"), "{stderr}");
    assert!(table.starts_with("STATE    TICK ") && table.lines().count() == 9, "{table}");
    let (code, stdout, _) = outcome(&mut zlock(&["jobs", "--json", "--url", url, "jobs"])).await;
    let listed: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &listed["other_values"], &listed["unreadable"]), (0, &1.into(), &0.into()));
    let of = |name: &str| {
        let jobs = listed["jobs"].as_array().unwrap();
        jobs.iter().find(|job| job["job"] == name).unwrap_or_else(|| panic!("{name}: {listed}")).clone()
    };
    let late = of("/jobs/late");
    assert_eq!((&late["state"], &late["overdue"]), (&"done".into(), &true.into()), "{late}");
    assert_eq!(
        (&late["tick"], &late["next"]),
        (&"2025-11-24T21:00:00Z".into(), &"2025-11-24T22:00:00Z".into())
    );
    let hopeless = of("/jobs/hopeless");
    assert_eq!((&hopeless["state"], &hopeless["overdue"]), (&"failed".into(), &true.into()), "{hopeless}");
    let huge = of("/jobs/huge");
    assert_eq!((&huge["period_seconds"], &huge["overdue"]), (&1e19.into(), &false.into()), "{huge}");
    let dead = of("/jobs/dead");
    assert_eq!(
        (&dead["state"], &dead["overdue"], &dead["next"]),
        (&"died".into(), &Value::Null, &Value::Null)
    );
    for (name, state) in [("report", "done"), ("fails", "failed"), ("long", "running")] {
        let job = of(&format!("/jobs/{name}"));
        assert_eq!(
            (&job["state"], &job["overdue"], &job["attempt"]),
            (&state.into(), &false.into(), &1.into())
        );
        assert_eq!(job["last_success"].is_null(), state != "done", "{job}");
        assert!(job["by"].as_str().unwrap().contains(" pid "), "{job}");
    }
    let migrate = of("/jobs/migrate.once/v1.2");
    assert_eq!((&migrate["state"], &migrate["tick"]), (&"done".into(), &Value::Null), "{migrate}");

    let history = jobs(url, &["--history", "jobs/hopeless"]).await;
    let runs = history["runs"].as_array().unwrap();
    assert_eq!((&history["job"], runs.len()), (&"/jobs/hopeless".into(), 4), "{history}");
    for (run, before) in runs.iter().zip(&runs[1..]) {
        // A whole second has no fraction, which would come before one that has.
        let time = |run: &Value, name: &str| match run[name].as_str().unwrap().trim_end_matches('Z') {
            whole if !whole.contains('.') => format!("{whole}.0"),
            time => time.to_owned(),
        };
        assert!(
            time(run, "tick") > time(before, "tick") && time(run, "began") >= time(before, "ended"),
            "{history}"
        );
        assert_eq!((&run["state"], &run["attempt"]), (&"failed".into(), &1.into()), "{run}");
    }
    for (name, state) in [("/jobs/dead", "died"), ("/jobs/long", "running")] {
        let history = jobs(url, &["--history", name]).await;
        assert_eq!(
            (&history["runs"][0]["state"], &history["runs"][0]["ended"]),
            (&state.into(), &Value::Null)
        );
    }
    let (code, table, _) = outcome(&mut zlock(&["jobs", "--url", url, "--history", "jobs/report"])).await;
    assert!(code == 0 && table.starts_with("TICK ") && table.lines().count() == 2, "{table}");
    let (code, _, stderr) = outcome(&mut zlock(&["jobs", "--url", url, "--history", "jobs/none"])).await;
    assert_eq!((code, &*stderr), (125, "zlock: /jobs/none: no job has run here\n"));

    let many = jobs(url, &["many"]).await;
    let names: std::collections::BTreeSet<_> =
        many["jobs"].as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    assert_eq!(names.len(), MANY);
    client.close().await.unwrap();
    drop(long);
}

on_each_url! { are_listed, }
