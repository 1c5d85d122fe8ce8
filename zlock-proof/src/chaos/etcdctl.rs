//! What an operator does with `etcdctl`.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

/// Runs it on a server.
fn etcdctl(server: SocketAddr, args: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints={server}")).arg("--command-timeout=2s");
    command.args(args).stdin(Stdio::null()).output()
}

/// Ends a session: revokes its lease. `false` if there is no such lease.
///
/// # Errors
/// If the server does not answer.
pub(crate) fn revoke(server: SocketAddr, session: u64) -> io::Result<bool> {
    let Output { status, stderr, .. } = etcdctl(server, &["lease", "revoke", &format!("{session:x}")])?;
    let why = String::from_utf8_lossy(&stderr);
    match status.success() {
        true => Ok(true),
        false if why.contains("lease not found") => Ok(false),
        false => Err(io::Error::other(why)),
    }
}

/// The leases that there are; `None` without an answer.
pub(crate) fn leases(server: SocketAddr) -> Option<BTreeSet<u64>> {
    let Output { status, stdout, .. } = etcdctl(server, &["lease", "list"]).ok()?;
    let text = String::from_utf8_lossy(&stdout);
    // The first line says how many there are.
    let leases = text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).collect();
    status.success().then_some(leases)
}

/// The keys and leases that there are.
///
/// # Errors
/// If the server does not answer.
pub(crate) fn left(server: SocketAddr) -> io::Result<Vec<String>> {
    let mut left = Vec::new();
    for args in [&["get", "", "--prefix", "--keys-only"][..], &["lease", "list"]] {
        let Output { status, stdout, stderr } = etcdctl(server, args)?;
        if !status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&stderr)));
        }
        let text = String::from_utf8_lossy(&stdout);
        let lines = text.lines().filter(|line| !line.is_empty() && *line != "found 0 leases");
        left.extend(lines.map(|line| format!("{}: {line}", args[0])));
    }
    Ok(left)
}
