//! The doctor's checks of etcd members.

use etcd_client::{AlarmAction, AlarmType, Client, GetOptions};
use tokio::time::timeout;
use zlock::LockPath;
use zlock::etcd::EtcdOptions;

use super::finding::Finding;
use super::version;
use crate::exit::Failure;
use crate::store::etcd::{PATIENCE, connect, each_key, failed, is_place};

/// A store with this many revisions should have been compacted.
const MANY_REVISIONS: i64 = 10_000;

/// A quarter below the default quota of 2 GiB.
const LARGE: i64 = 3 << 29;

pub(super) async fn examine(
    options: &EtcdOptions,
    url: &str,
    prefix: Option<&LockPath>,
) -> Result<Vec<Finding>, Failure> {
    let mut findings = members(options).await?;
    let mut client = connect(options).await?;
    findings.push(compaction(&mut client).await?);
    findings.push(alarms(&mut client).await?);
    findings.extend(keys(options, url, prefix).await?);
    Ok(findings)
}

/// Checks the version, role and database size of each member.
async fn members(options: &EtcdOptions) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for host in options.server_addresses().await? {
        let status = async {
            let mut client = options.connect_client(&host).await?;
            let silent = |_| Failure::failed("etcd: the server does not answer");
            timeout(PATIENCE, client.status()).await.map_err(silent)?.map_err(failed)
        };
        findings.push(match status.await {
            Err(failure) => Finding::bad(
                "server",
                format!("{host}: {failure}"),
                "check that the server runs; the other servers in the URL are used meanwhile",
            ),
            Ok(status) => {
                let id = status.header().map_or(0, etcd_client::ResponseHeader::member_id);
                let role = if status.leader() == id { "leader" } else { "follower" };
                let size = status.db_size();
                let message = format!("{host}: etcd {}, {role}, {} kB", status.version(), size / 1024);
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
        });
    }
    Ok(findings)
}

/// Checks that old revisions are compacted. A server does not report its options, so this requests the first revision.
async fn compaction(client: &mut Client) -> Result<Finding, Failure> {
    let now = client.get("/", Some(GetOptions::new().with_count_only())).await.map_err(failed)?;
    let revision = now.header().map_or(0, etcd_client::ResponseHeader::revision);
    let first = client.get("/", Some(GetOptions::new().with_count_only().with_revision(1))).await;
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

/// Finds keys below the path that have no lease, or that do not belong to a queue.
async fn keys(options: &EtcdOptions, url: &str, prefix: Option<&LockPath>) -> Result<Vec<Finding>, Failure> {
    let (mut ownerless, mut foreign) = (Vec::new(), Vec::new());
    let mut locks = std::collections::BTreeSet::new();
    each_key(options, url, prefix, |path, name, key| {
        let is_hexadecimal = name.len() >= 12 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if is_place(name, key) {
            locks.insert(path.to_owned());
        } else if key.lease() == 0 && is_hexadecimal {
            ownerless.push(format!("{path}/{name}"));
        } else {
            foreign.push((path.to_owned(), name.to_owned()));
        }
    })
    .await?;
    let beside: Vec<_> = foreign
        .iter()
        .filter(|(path, _)| locks.contains(path))
        .map(|(path, name)| format!("{path}/{name}"))
        .collect();
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
