//! The doctor's checks of PostgreSQL: the servers, the database, and what is between them and this client.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;
use zlock::postgres::{PostgresOptions, Replication};

use super::Advice;
use super::finding::Finding;
use super::version;
use crate::exit::Failure;
use crate::store::postgres::failed;

/// The time limit for a server's response.
const PATIENCE: Duration = Duration::from_secs(5);

/// The part of the queue of notifications that may be used.
const FULL: f64 = 0.5;

/// A transaction that is open for longer keeps the rows of released locks from being removed.
const OLD: Duration = Duration::from_secs(3600);

/// A fenced transaction that is open for longer may have been forgotten.
const OPEN: Duration = Duration::from_secs(5);

/// A client closes a connection that it has not used for this long.
const IDLE: Duration = Duration::from_secs(60);

/// Checks what can be checked without a session, which a server may have refused. Adds nothing if no server responds.
pub(super) const ADVICE: Advice = Advice {
    credentials: "check the user and the password, and what pg_hba.conf says of them",
    session: "give the time in the URL with a unit",
    reads: "check that this user may use the schema zlock: GRANT zlock_user TO .. permits it",
    writes: "check that the server is the primary and has free disk space, and the findings below",
};

pub(super) async fn examine(options: &PostgresOptions, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let mut primary = None;
    let (mut servers, mut responses) = (Vec::new(), 0);
    for (n, server) in options.servers().iter().enumerate() {
        match connect(options, n).await {
            Ok(client) => {
                responses += 1;
                let (finding, is_primary) = role(server, &client).await?;
                servers.push(finding);
                if is_primary && primary.is_none() {
                    primary = Some((n, client));
                }
            }
            Err(failure) => servers.push(Finding::bad(
                "server",
                format!("{server}: {failure}"),
                "check that the server runs; the other servers in the URL are used meanwhile",
            )),
        }
    }
    if responses == 0 {
        return Ok(());
    }
    findings.append(&mut servers);
    let Some((server, client)) = primary else {
        findings.push(Finding::bad(
            "primary",
            "no server of the URL accepts writes",
            "name the primary in the URL, beside its replicas",
        ));
        return Ok(());
    };
    findings.push(schema(&client).await?);
    findings.push(isolation(&client).await?);
    findings.extend(durability(&client).await?);
    findings.extend(replication(&client, options.replication()).await?);
    let other = connect(options, server).await?;
    findings.push(connections(&client, &other, options).await?);
    findings.extend(limits(&client).await?);
    Ok(())
}

async fn connect(options: &PostgresOptions, server: usize) -> Result<Client, Failure> {
    let silent = |_| Err(Failure::failed("the server does not answer"));
    match timeout(PATIENCE, options.connect_client_to(server)).await {
        Ok(connected) => connected.map_err(Failure::from),
        Err(late) => silent(late),
    }
}

/// Reads a value. Nothing is prepared, which a pooler might forget.
async fn read<T>(client: &Client, sql: &str) -> Result<T, Failure>
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    let rows = timeout(PATIENCE, client.query_typed(sql, &[])).await;
    let rows = rows.map_err(|_| Failure::failed("PostgreSQL: the server does not answer"))?;
    let none = || Failure::failed("PostgreSQL: an empty answer");
    rows.map_err(failed)?.first().ok_or_else(none)?.try_get(0).map_err(failed)
}

async fn setting(client: &Client, name: &str) -> Result<String, Failure> {
    read(client, &format!("SELECT coalesce(current_setting('{name}', true), '')")).await
}

/// Checks a server's version, and finds out whether it is the primary.
async fn role(server: &str, client: &Client) -> Result<(Finding, bool), Failure> {
    let text = setting(client, "server_version").await?;
    let number: String = read(client, "SELECT current_setting('server_version_num')").await?;
    let is_replica: bool = read(client, "SELECT pg_is_in_recovery()").await?;
    let role = if is_replica { "replica" } else { "primary" };
    let number_only = text.split(' ').next().unwrap_or_default();
    let message = format!("{server}: PostgreSQL {number_only}, {role}");
    let finding = match version::postgres(number.parse().unwrap_or(0)) {
        Some(advice) => Finding::bad("server", message, advice),
        None => Finding::good("server", message),
    };
    Ok((finding, !is_replica))
}

async fn schema(client: &Client) -> Result<Finding, Failure> {
    let remedy = "as the database's owner, run the SQL that `zlock pg schema` prints, and GRANT zlock_user to this user";
    Ok(match read::<i32>(client, "SELECT zlock.version()").await {
        Ok(1) => Finding::bad(
            "schema",
            "zlock, version 1, and this client needs version 2",
            "end the clients of version 1, run DROP SCHEMA zlock CASCADE, and then the SQL that `zlock pg schema` prints",
        ),
        Ok(version) => Finding::good("schema", format!("zlock, version {version}")),
        Err(failure) => Finding::bad("schema", failure.message, remedy),
    })
}

async fn isolation(client: &Client) -> Result<Finding, Failure> {
    let level = setting(client, "default_transaction_isolation").await?;
    if level == "read committed" {
        return Ok(Finding::good("isolation", level));
    }
    let user: String = read(client, "SELECT quote_ident(current_user)").await?;
    let remedy = format!("ALTER ROLE {user} SET default_transaction_isolation = 'read committed'");
    Ok(Finding::bad("isolation", format!("{level}, in which a client may see an old queue"), remedy))
}

async fn durability(client: &Client) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for (name, loss) in [
        ("fsync", "a crash of the machine may lose locks that are held, or damage the database"),
        ("full_page_writes", "a crash of the machine may damage the database"),
    ] {
        let value = setting(client, name).await?;
        findings.push(if value == "on" {
            Finding::good("durability", format!("{name} is on"))
        } else {
            Finding::bad("durability", format!("{name} is {value}: {loss}"), format!("set {name} = on"))
        });
    }
    let commit = setting(client, "synchronous_commit").await?;
    let message = match &*commit {
        "off" | "local" => {
            format!(
                "synchronous_commit is {commit}, but zlock's own commits are confirmed as with on, except for releases"
            )
        }
        _ => format!("synchronous_commit is {commit}"),
    };
    findings.push(Finding::good("durability", message));
    Ok(findings)
}

/// Shows the class of the store, and compares it with what the URL says and what the server does. `None` if it cannot be read, as the
/// finding about the schema says.
async fn replication(client: &Client, expected: Replication) -> Result<Option<Finding>, Failure> {
    let class = read::<String>(client, "SELECT class FROM zlock.v2_setup()").await;
    let reason = read::<String>(client, "SELECT coalesce(reason, '') FROM zlock.v2_setup()").await;
    let (Ok(class), Ok(reason)) = (class, reason) else { return Ok(None) };
    let names = setting(client, "synchronous_standby_names").await?;
    if expected == Replication::Sync && class != "sync" {
        return Ok(Some(Finding::bad(
            "replication",
            format!("the URL says replication=sync, and the store is of the class {class}"),
            "remove replication=sync, or if no failover loses a confirmed commit, run zlock class --set sync",
        )));
    }
    let message = match (&*class, names.is_empty()) {
        ("sync", true) => {
            return Ok(Some(Finding::bad(
                "replication",
                "the store is of the class sync, but commits wait for no replica: a failover may lose locks that are held",
                "run zlock class --set auto, unless the storage itself is replicated, or set synchronous_standby_names",
            )));
        }
        ("sync", false) => format!("class sync: commits wait for {names}"),
        ("auto", _) if reason.is_empty() => {
            "class auto: there was no sign of a replica, so a restart ends no session".into()
        }
        ("auto", _) => format!("class auto, found to be lossy: {reason}"),
        _ => format!("class {class}"),
    };
    let message = match &*class {
        "sync" => message,
        _ if names.is_empty() => message,
        _ => format!("{message}. Commits wait for {names}: in the class sync, locks survive a failover"),
    };
    Ok(Some(Finding::good("replication", message)))
}

/// Two connections that are open at the same time have a server process each, unless a pooler in transaction mode is in between.
async fn connections(one: &Client, other: &Client, options: &PostgresOptions) -> Result<Finding, Failure> {
    let process = async |client| read::<i32>(client, "SELECT pg_backend_pid()").await;
    let mut is_shared = false;
    for _ in 0..3 {
        is_shared |= process(one).await? == process(other).await?;
    }
    let listens = options.listens() && options.listen_at().is_none();
    Ok(match (is_shared, options.has_pooler(), listens) {
        (true, true, false) => Finding::good("connections", "a pooler in transaction mode, as the URL says"),
        (true, _, _) => Finding::bad(
            "connections",
            "a pooler lends a server process to several clients in turn: prepared statements fail, and no notification arrives",
            "add pooler=true&listen=off to the URL, or connect to the server itself",
        ),
        (false, ..) if options.listens() => {
            Finding::good("connections", "each has a server process of its own")
        }
        (false, ..) => Finding::good(
            "connections",
            "each has a server process of its own; with listen=off, waiters look once a second",
        ),
    })
}

/// Checks what may end connections, keep waiters from being woken, or slow the server down.
async fn limits(client: &Client) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let idle: i64 = read(
        client,
        "SELECT coalesce((SELECT setting::bigint FROM pg_settings WHERE name = 'idle_session_timeout'), 0)",
    )
    .await?;
    let time = Duration::from_millis(idle.max(0).cast_unsigned());
    findings.push(if time.is_zero() || time > IDLE {
        Finding::good("idle connections", "they are kept")
    } else {
        Finding::bad(
            "idle connections",
            format!("they are ended after {time:?}, before the clients close them"),
            "for this user, ALTER ROLE .. SET idle_session_timeout = 0",
        )
    });
    let used: f64 = read(client, "SELECT pg_notification_queue_usage()").await?;
    let message = format!("{:.0} % of the queue is used", used * 100.0);
    findings.push(if used < FULL {
        Finding::good("notifications", message)
    } else {
        Finding::bad(
            "notifications",
            message,
            "find the transaction that is open for long in a connection with LISTEN, and end it",
        )
    });
    // Of other users, only if this one may see it.
    let oldest: f64 = read(
        client,
        "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity
         WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()",
    )
    .await?;
    let oldest = Duration::try_from_secs_f64(oldest.max(0.0)).unwrap_or_default();
    findings.push(if oldest < OLD {
        Finding::good("old transactions", format!("none that this user may see is older than {OLD:?}"))
    } else {
        Finding::bad(
            "old transactions",
            format!("one is open for {oldest:.0?}: the rows of released locks are kept as long"),
            "end it, or give the locks a database of their own",
        )
    });
    findings.push(fences(client).await?);
    Ok(findings)
}

/// Names the transactions that have kept a lock from being released for long. zlock's own are short, unless they wait for such a one.
async fn fences(client: &Client) -> Result<Finding, Failure> {
    let open: String = read(
        client,
        &format!(
            "SELECT coalesce(string_agg(format('pid %s (%s) for %s s, %s', a.pid, coalesce(nullif(a.application_name, ''), 'no name'),
                round(extract(epoch FROM clock_timestamp() - a.xact_start)), a.state), '; ' ORDER BY a.xact_start), '')
             FROM pg_stat_activity a
             WHERE a.datname = current_database() AND a.xact_start < clock_timestamp() - interval '{OPEN:?}'
                AND position('zlock.v2_' IN a.query) = 0 AND a.pid IN (
                    SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE l.mode = 'RowShareLock' AND l.granted AND c.relname = 'entry' AND n.nspname = 'zlock')"
        ),
    )
    .await?;
    if !open.is_empty() {
        return Ok(Finding::bad(
            "fenced transactions",
            format!("open, so that the next holder has to wait: {open}"),
            "commit it or roll it back; if it is forgotten, SELECT pg_terminate_backend(pid)",
        ));
    }
    let timeout = setting(client, "idle_in_transaction_session_timeout").await?;
    let message = match &*timeout {
        "0" => "nothing ends one that is left open (idle_in_transaction_session_timeout is 0)".to_owned(),
        timeout => format!("one that is left open ends after {timeout}"),
    };
    Ok(Finding::good("fenced transactions", message))
}
