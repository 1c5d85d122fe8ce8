//! `zlock doctor`: checks that a store is ready for locks, and suggests a fix for each problem.

#[cfg(feature = "etcd")]
mod etcd;
mod finding;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "zk", feature = "etcd", feature = "postgres"))]
mod version;
#[cfg(feature = "zk")]
mod zk;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use zlock::{Client, Close, Error, ErrorKind, LockPath};

use self::finding::Finding;
use crate::args::Below;
use crate::exit::{Failure, checked};
use crate::output::{millis, print, print_json};
use crate::store::{Store, Target};

/// The number of requests that measure the round trip.
const SAMPLES: usize = 20;

/// A median round trip from here on is reported as slow.
const SLOW: Duration = Duration::from_millis(100);

/// The time limit for acquiring the doctor's lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of the lock that the doctor acquires.
const PROBE: &str = "zlock-doctor";

/// What may be wrong, where only the kind of store makes the difference.
struct Advice {
    credentials: &'static str,
    session: &'static str,
    reads: &'static str,
    writes: &'static str,
}

impl Advice {
    fn of(target: &Target) -> Self {
        match target {
            #[cfg(feature = "zk")]
            Target::Zk(_) => zk::ADVICE,
            #[cfg(feature = "etcd")]
            Target::Etcd(_) => etcd::ADVICE,
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => postgres::ADVICE,
            #[cfg(feature = "mysql")]
            Target::Mysql(_) => mysql::ADVICE,
            // It is inside this process.
            #[cfg(feature = "mem")]
            Target::Mem(_) => Advice {
                credentials: "use mem:// without credentials",
                session: "use it as it is",
                reads: "run zlock doctor again",
                writes: "run zlock doctor again",
            },
        }
    }
}

pub(crate) async fn doctor(args: Below) -> Result<ExitCode, Failure> {
    let url = args.store.url.clone().unwrap_or_default();
    let target = Target::of(&args.store)?;
    let probe = match &args.prefix {
        Some(prefix) => prefix.join(PROBE)?,
        None => LockPath::new(format!("/{PROBE}"))?,
    };
    let mut findings = Vec::new();
    match target.connect().await {
        // A file that cannot be read, for example. No server was contacted.
        Err(error) if error.kind() == ErrorKind::InvalidArgument && !target.checks_more() => {
            return Err(error.into());
        }
        Err(error) => {
            findings.push(unreachable(&error, &Advice::of(&target)));
            examine_without_session(&target, &mut findings).await;
        }
        Ok(store) => {
            findings.push(Finding::good("reachable", "a session was established"));
            examine(&store, &url, args.prefix.as_ref(), &probe, &mut findings).await?;
        }
    }
    let is_well = findings.iter().all(Finding::is_good);
    let printed = if args.format.json {
        let all: Vec<_> = findings.iter().map(Finding::to_json).collect();
        print_json(&json!({ "ok": is_well, "findings": all }))
    } else {
        findings.iter().try_for_each(|finding| print(&finding.line()))
    };
    checked(is_well, printed)
}

fn unreachable(error: &Error, advice: &Advice) -> Finding {
    let message = error.to_string();
    let remedy = match error.kind() {
        ErrorKind::NotAuthorized => advice.credentials,
        // Of PostgreSQL alone.
        ErrorKind::InvalidArgument => "the server can be reached: the findings below say more",
        // It is not the network.
        _ if message.contains("accepts connections") => {
            "check the servers: they may be frozen, overloaded, or at a limit of connections"
        }
        _ => "check the hosts in the URL, the servers, and the firewall between them and this machine",
    };
    Finding::bad("reachable", message, remedy)
}

async fn examine(
    store: &Store,
    url: &str,
    prefix: Option<&LockPath>,
    probe: &LockPath,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let advice = Advice::of(&store.target);
    findings.push(session(store, url, &advice));
    findings.push(round_trip(store, probe, &advice).await);
    let client = Client::new(store.backend.clone());
    findings.push(permission(&client, probe, &advice).await?);
    let examined: Result<(), Failure> = match &store.target {
        #[cfg(feature = "zk")]
        Target::Zk(options) => zk::examine(options, prefix, findings).await,
        #[cfg(feature = "etcd")]
        Target::Etcd(options) => etcd::examine(options, prefix, findings).await,
        #[cfg(feature = "postgres")]
        Target::Postgres(options) => {
            let _ = prefix;
            postgres::examine(options, findings).await
        }
        #[cfg(feature = "mysql")]
        Target::Mysql(options) => {
            let _ = prefix;
            mysql::examine(options, findings).await
        }
        #[cfg(feature = "mem")]
        Target::Mem(_) => {
            let _ = prefix;
            Ok(())
        }
    };
    if let Err(failure) = examined {
        findings.push(unreadable(failure));
    }
    if !matches!(client.close().await, Ok(Close::Ended)) {
        findings.push(Finding::bad(
            "close",
            "the end of the session was not confirmed",
            "run zlock doctor again",
        ));
    }
    Ok(())
}

/// Examines a server that may have refused a session: a database without the schema, for example.
async fn examine_without_session(target: &Target, findings: &mut Vec<Finding>) {
    #[cfg(feature = "postgres")]
    if let Target::Postgres(options) = target
        && let Err(failure) = postgres::examine(options, findings).await
    {
        findings.push(unreadable(failure));
    }
    let _ = (target, findings);
}

fn unreadable(failure: Failure) -> Finding {
    Finding::bad(
        "server",
        failure.message,
        "locks work if the checks above pass; check that this client may read the server's status",
    )
}

/// Compares the granted session timeout with the requested one.
fn session(store: &Store, url: &str, advice: &Advice) -> Finding {
    let asked = url
        .split(['?', '&'])
        .find_map(|part| part.strip_prefix("session_timeout=").or_else(|| part.strip_prefix("ttl=")));
    let (asked, granted) = (asked.unwrap_or("10s"), store.terms.timeout);
    // Without a unit, a time of PostgreSQL is in seconds.
    let in_seconds = format!("{asked}s");
    if [asked, &in_seconds].iter().any(|asked| crate::args::duration(asked) == Ok(granted)) {
        return Finding::good("session timeout", format!("{granted:?}, as requested"));
    }
    Finding::bad(
        "session timeout",
        format!("{granted:?} instead of {asked}"),
        format!("use ?session_timeout={}ms, or {}", granted.as_millis(), advice.session),
    )
}

async fn round_trip(store: &Store, path: &LockPath, advice: &Advice) -> Finding {
    let mut times = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let began = Instant::now();
        if let Err(error) = store.backend.children(path, None).await {
            return Finding::bad("round trip", error.to_string(), advice.reads);
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (median, longest) = (times[SAMPLES / 2], times[SAMPLES - 1]);
    let message = format!("median {} ms, longest {} ms of {SAMPLES}", millis(median), millis(longest));
    if median < SLOW {
        return Finding::good("round trip", message);
    }
    Finding::bad("round trip", message, "use nearer servers, or find out why these are slow")
}

/// Acquires and releases a lock.
async fn permission(client: &Client, probe: &LockPath, advice: &Advice) -> Result<Finding, Failure> {
    // Another doctor may hold the lock for a moment.
    let tried = match client.mutex(probe)?.acquire_timeout(PATIENCE).await {
        Ok(guard) => guard.release().await.map(drop),
        Err(error) => Err(error),
    };
    let Err(error) = tried else {
        return Ok(Finding::good("permission", format!("a lock was acquired and released at {probe}")));
    };
    let remedy = match error.kind() {
        ErrorKind::Busy => "`zlock who` shows the holder: nothing but `zlock doctor` should use this path",
        ErrorKind::NotAuthorized => "let this client create, read, write and delete below the path",
        _ => advice.writes,
    };
    Ok(Finding::bad("permission", error.to_string(), remedy))
}

/// Creates a finding that lists nodes, good if there are none.
#[cfg(any(feature = "zk", feature = "etcd"))]
fn listed(check: &'static str, nodes: &crate::store::Count, remedy: &str) -> Finding {
    match nodes.total {
        0 => Finding::good(check, "none"),
        _ => Finding::bad(check, nodes.to_string(), remedy),
    }
}
