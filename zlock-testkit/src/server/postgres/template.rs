//! What `initdb` makes, once for all servers of a test program.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::geteuid;
use tempfile::TempDir;

use super::super::daemon::Daemon;
use super::super::programs::Programs;
use super::super::room::roomy_folder;
use super::layout::{self, KIND, OPERATOR, USER};
use crate::process::Process;

/// Returns a folder for a server: in memory if there is room, and if the caller does not want a disk.
pub(super) fn make_folder(on_disk: bool) -> TempDir {
    let folder = if on_disk { Daemon::make_folder(&KIND) } else { roomy_folder(&KIND) };
    give_to_server(folder.path());
    folder
}

/// Makes a new file or folder the server's own.
pub(super) fn give_to_server(path: &Path) {
    if geteuid().is_root() {
        let (uid, gid) = Programs::postgres_user().expect("the user postgres");
        chown(path, Some(uid), Some(gid)).expect("a new owner");
    }
}

/// Returns a command that runs as the server's user: the programs of PostgreSQL refuse to run as root.
pub(super) fn as_server(command: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];
    let user = user.into_iter().filter(|_| geteuid().is_root()).map(Into::into);
    user.chain(command).collect()
}

/// Runs a command as the server's user.
///
/// # Panics
/// Panics with its output if it fails.
pub(super) fn run(command: impl IntoIterator<Item = OsString>, folder: &Path, input: &str) {
    let command = as_server(command);
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).current_dir(folder);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // It only fails if the program has ended, which it explains.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let out = child.wait_with_output().expect("a child's output");
    let text = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
}

/// Copies the data of a new server to `data`.
pub(super) fn copy_to(data: &Path, folder: &Path) {
    // The process keeps the folder until this one ends.
    static TEMPLATE: OnceLock<(TempDir, Process)> = OnceLock::new();
    let (template, _) = TEMPLATE.get_or_init(|| {
        let folder = make_folder(false);
        let keeper = ["sleep", "infinity"].map(Into::into);
        let keeper = Process::spawn_guarded(&keeper, &[], Some(folder.path()), None, false);
        make(folder.path());
        (folder, keeper)
    });
    let copy = ["cp", "-a", "-T"].map(OsString::from).into_iter();
    run(copy.chain([layout::data(template.path()).into(), data.into()]), folder, "");
}

fn make(folder: &Path) {
    let programs = Programs::selected();
    let initdb = [programs.postgres("initdb").into(), "-D".into(), layout::data(folder).into()];
    let options = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", "--wal-segsize=1"];
    let operator = ["--username", OPERATOR].map(OsString::from);
    run(initdb.into_iter().chain(options.map(Into::into)).chain(operator), folder, "");
    // In single-user mode each line is a statement.
    let statements = format!(
        "CREATE EXTENSION pg_stat_statements\nCREATE ROLE {USER} LOGIN\nCREATE DATABASE {USER} OWNER {USER}\n"
    );
    let single = [programs.postgres("postgres").into(), "--single".into(), "-D".into()];
    let database = [layout::data(folder).into(), OPERATOR.into()];
    run(single.into_iter().chain(database), folder, &statements);
}
