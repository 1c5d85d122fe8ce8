//! Statements by Debian's client.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::super::programs::Programs;
use super::layout::OPERATOR;

/// Executes statements as the operator. Returns the rows.
///
/// # Errors
/// The output of `psql`.
pub(super) fn psql(addr: SocketAddr, database: &str, statements: &str) -> Result<String, String> {
    let mut psql = Command::new(Programs::psql());
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", OPERATOR, "-d", database]);
    psql.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()]);
    // The environment of whoever runs the tests is not meant for this server.
    std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")).for_each(|(name, _)| {
        psql.env_remove(name);
    });
    let mut child = psql
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("psql: {error}"))?;
    // It only fails if psql has ended, which it explains.
    let _ = child.stdin.take().map(|mut input| input.write_all(statements.as_bytes()));
    let out = child.wait_with_output().map_err(|error| format!("psql: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) }
}
