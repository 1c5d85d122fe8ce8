//! An operator's use of `etcdctl`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

/// Runs it on a server.
fn etcdctl(server: SocketAddr, args: &[&str]) -> io::Result<Output> {
    let mut command = Command::new(zlock_testkit::etcdctl());
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints={server}")).arg("--command-timeout=2s");
    command.args(args).stdin(Stdio::null()).output()
}

/// Ends a session by revoking its lease. Returns `false` if there is no such lease.
///
/// # Errors
/// The server does not respond.
pub(crate) fn revoke(server: SocketAddr, session: u64) -> io::Result<bool> {
    let Output { status, stderr, .. } = etcdctl(server, &["lease", "revoke", &format!("{session:x}")])?;
    let why = String::from_utf8_lossy(&stderr);
    match status.success() {
        true => Ok(true),
        false if why.contains("lease not found") => Ok(false),
        false => Err(io::Error::other(why)),
    }
}

/// Compacts up to the server's current revision. Earlier revisions can no longer be read or watched.
///
/// # Errors
/// The server does not respond, or that revision has already been compacted.
pub(crate) fn compact(server: SocketAddr) -> io::Result<()> {
    text(server, &["compact", &status(server, "Revision")?.to_string()]).map(drop)
}

/// Makes the leader transfer its role to another server.
///
/// # Errors
/// One of the two does not respond, or the first is not the leader.
pub(crate) fn move_leader(leader: SocketAddr, next: SocketAddr) -> io::Result<()> {
    text(leader, &["move-leader", &format!("{:x}", status(next, "MemberID")?)]).map(drop)
}

/// Returns a number from the server's status.
fn status(server: SocketAddr, name: &str) -> io::Result<u64> {
    let status = text(server, &["endpoint", "status", "--write-out=fields"])?;
    let number = |line: &str| line.strip_prefix(&format!("\"{name}\" : "))?.trim().parse().ok();
    status.lines().find_map(number).ok_or_else(|| io::Error::other(format!("no {name} in {status}")))
}

/// Returns all leases, or `None` without a response.
pub(crate) fn leases(server: SocketAddr) -> Option<BTreeSet<u64>> {
    let Output { status, stdout, .. } = etcdctl(server, &["lease", "list"]).ok()?;
    let text = String::from_utf8_lossy(&stdout);
    // The first line is their number.
    let leases = text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).collect();
    status.success().then_some(leases)
}

/// Returns the keys and leases of a server that has caught up with the leader, and a hash over all of its data.
///
/// # Errors
/// The server does not respond.
pub(crate) fn contents(server: SocketAddr) -> io::Result<BTreeMap<String, String>> {
    let keys = fields(&text(server, &["get", "", "--prefix", "--write-out=fields"])?);
    let leases = text(server, &["lease", "list"])?;
    let leases = leases.lines().filter(|line| u64::from_str_radix(line, 16).is_ok());
    let hash = text(server, &["endpoint", "hashkv"])?;
    let hash = hash.trim().rsplit(", ").next().unwrap_or_default().to_owned();
    let leases = leases.map(|lease| (format!("lease {lease}"), "known".to_owned()));
    Ok(keys.into_iter().chain(leases).chain([("the hash of all keys".to_owned(), hash)]).collect())
}

/// Returns the keys in a listing of fields, each with its immutable properties.
fn fields(listing: &str) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let (mut key, mut made) = (String::new(), String::new());
    for (name, value) in listing.lines().filter_map(|line| line.split_once(" : ")) {
        match name {
            "\"Key\"" => key = value.trim_matches('"').to_owned(),
            "\"CreateRevision\"" => made = value.to_owned(),
            "\"Lease\"" => {
                keys.insert(key.clone(), format!("created by {made} under lease {value}"));
            }
            _ => {}
        }
    }
    keys
}

/// Returns the standard output.
fn text(server: SocketAddr, args: &[&str]) -> io::Result<String> {
    let Output { status, stdout, stderr } = etcdctl(server, args)?;
    if !status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&stderr)));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Returns all keys and leases.
///
/// # Errors
/// The server does not respond.
pub(crate) fn remaining(server: SocketAddr) -> io::Result<Vec<String>> {
    let mut left = Vec::new();
    for args in [&["get", "", "--prefix", "--keys-only"][..], &["lease", "list"]] {
        let text = text(server, args)?;
        let lines = text.lines().filter(|line| !line.is_empty() && *line != "found 0 leases");
        left.extend(lines.map(|line| format!("{}: {line}", args[0])));
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_with_their_revisions_and_leases() {
        let listing = "\"Revision\" : 9\n\"Key\" : \"/l/a\"\n\"CreateRevision\" : 2\n\"ModRevision\" : 3\n\
                       \"Value\" : \"x\"\n\"Lease\" : 7\n\"Key\" : \"/l/b\"\n\"CreateRevision\" : 5\n\"Lease\" : 0\n\
                       \"More\" : false\n\"Count\" : 2\n";
        let expected = [("/l/a", "created by 2 under lease 7"), ("/l/b", "created by 5 under lease 0")];
        assert_eq!(fields(listing), expected.map(|(key, what)| (key.to_owned(), what.to_owned())).into());
    }
}
