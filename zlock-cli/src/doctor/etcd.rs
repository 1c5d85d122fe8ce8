//! The doctor's checks of etcd members.

use etcd_client::{AlarmAction, AlarmType, Client, GetOptions, KeyValue, StatusResponse};
use zlock::LockPath;
use zlock::etcd::EtcdOptions;

use super::Advice;
use super::finding::Finding;
use super::version;
use crate::exit::Failure;
use crate::store::Count;
use crate::store::etcd::{Walk, connect_to, failed, is_place, no_server};

/// A store with this many revisions should have been compacted.
const MANY_REVISIONS: i64 = 10_000;

/// A quarter below the default quota of 2 GiB.
const LARGE: i64 = 3 << 29;

pub(super) const ADVICE: Advice = Advice {
    credentials: "check ZLOCK_USER and its password",
    session: "lower the servers' --election-timeout, which limits the TTL of leases",
    reads: "check that this client may read below the prefix, and that the cluster has a leader",
    writes: "check that the cluster accepts writes: a leader, and a database below --quota-backend-bytes",
};

pub(super) async fn examine(
    options: &EtcdOptions,
    prefix: Option<&LockPath>,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let mut first = None;
    for server in options.server_addresses().await? {
        match connect_to(options, &server).await {
            Ok((client, status)) => {
                findings.push(member(&server, &status));
                first.get_or_insert(client);
            }
            Err(failure) => findings.push(Finding::bad(
                "server",
                format!("{server}: {failure}"),
                "check that the server runs; the other servers in the URL are used meanwhile",
            )),
        }
    }
    let mut client = first.ok_or_else(no_server)?;
    findings.push(compaction(&mut client, options.prefix()).await?);
    findings.extend(keys(&mut client, options.prefix(), prefix).await?);
    findings.push(alarms(&mut client).await?);
    Ok(())
}

/// Checks the version, role and database size of a member.
fn member(server: &str, status: &StatusResponse) -> Finding {
    let id = status.header().map_or(0, etcd_client::ResponseHeader::member_id);
    let role = if status.leader() == id { "leader" } else { "follower" };
    let size = status.db_size();
    let message = format!("{server}: etcd {}, {role}, {} kB", status.version(), size / 1024);
    match version::parse(status.version()).and_then(version::etcd) {
        Some(advice) => Finding::bad("server", message, advice),
        None if status.leader() == 0 => {
            Finding::bad("server", message, "the cluster has no leader: start more members")
        }
        None if size > LARGE => Finding::bad(
            "server",
            message,
            "compact and defragment the store, or raise --quota-backend-bytes",
        ),
        None => Finding::good("server", message),
    }
}

/// Checks that old revisions are compacted. A server does not report its options, so this requests the first revision. A user
/// may be permitted to read nothing but keys below the prefix.
async fn compaction(client: &mut Client, root: &str) -> Result<Finding, Failure> {
    let key = format!("{root}/");
    let now = client.get(&*key, Some(GetOptions::new().with_count_only())).await.map_err(failed)?;
    let revision = now.header().map_or(0, etcd_client::ResponseHeader::revision);
    let first = client.get(key, Some(GetOptions::new().with_count_only().with_revision(1))).await;
    let was_compacted = first.is_err_and(|error| error.to_string().contains("compacted"));
    let message =
        format!("revision {revision}, {}", if was_compacted { "compacted" } else { "never compacted" });
    if was_compacted || revision < MANY_REVISIONS {
        return Ok(Finding::good("compaction", message));
    }
    Ok(Finding::bad(
        "compaction",
        message,
        "start the servers with --auto-compaction-retention=1h: each acquisition adds revisions",
    ))
}

async fn alarms(client: &mut Client) -> Result<Finding, Failure> {
    let answer = client.alarm(AlarmAction::Get, AlarmType::None, None).await.map_err(failed)?;
    if answer.alarms().is_empty() {
        return Ok(Finding::good("alarms", "none"));
    }
    let message = format!("raised by members of the cluster: {}", answer.alarms().len());
    Ok(Finding::bad("alarms", message, "run etcdctl alarm list; without free space no lock can be acquired"))
}

/// The keys of one path that are in no queue.
#[derive(Default)]
struct Others {
    has_places: bool,
    ownerless: Count,
    foreign: Count,
}

/// Finds keys below the path that have no lease, or that do not belong to a queue.
async fn keys(client: &mut Client, root: &str, prefix: Option<&LockPath>) -> Result<Vec<Finding>, Failure> {
    let (mut ownerless, mut beside) = (Count::default(), Count::default());
    let mut walk = Walk::<Others>::new(client, root, prefix);
    let mut sort = |others: &mut Others, name: &str, key: &KeyValue| {
        let is_hexadecimal = name.len() >= 12 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if is_place(name, key) {
            others.has_places = true;
        } else if key.lease() == 0 && is_hexadecimal {
            others.ownerless.add(name.to_owned());
        } else {
            others.foreign.add(name.to_owned());
        }
    };
    while let Some((path, others)) = walk.next(&mut sort).await? {
        ownerless.add_below(&path, others.ownerless);
        if others.has_places {
            beside.add_below(&path, others.foreign);
        }
    }
    Ok(vec![
        super::listed(
            "ownerless keys",
            &ownerless,
            "they look like holders without a lease: remove them unless they were created on purpose",
        ),
        super::listed(
            "foreign keys",
            &beside,
            "zlock ignores them, but other programs may not: use each path for one kind of lock only",
        ),
    ])
}
