//! `zlock run` for a user who may not do everything: what other users' processes do is hidden, or the system has no
//! room for another thread or process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;
use zlock_testkit::{have, have_strace, limit, limit_if};

use crate::support::{at_a_prompt, outcome};

/// A user who has no process.
const USER: &str = "61234";

/// Whether the tests are run by root, who can become another user and hide processes.
fn have_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    have((!is_root).then_some("only root can become another user"))
}

/// A folder for that user, with a copy of the command that may be executed whatever folder it was built in.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = support::folder();
    chmod(folder.path(), 0o777);
    let command = copy(Path::new(env!("CARGO_BIN_EXE_zlock")), folder.path(), "zlock", 0o755);
    (folder, command)
}

fn copy(program: &Path, folder: &Path, name: &str, mode: u32) -> PathBuf {
    let path = folder.join(name);
    std::fs::copy(program, &path).unwrap();
    chmod(&path, mode);
    path
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A program that runs another one, given by the arguments that follow, as this user.
fn as_user(user: &str, before: &[&str]) -> Command {
    let mut command = at_a_prompt(before.first().unwrap_or(&"setpriv"));
    command.args(before.iter().skip(1)).args(before.first().map(|_| "setpriv"));
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]).kill_on_drop(true);
    command
}

/// What /proc says about the command cannot be read, since the command has another user: whether it has ended, the kernel
/// says.
#[tokio::test]
async fn a_command_that_proc_hides_ends() {
    limit_if(have_root(), async {
        let (folder, command) = folder();
        let program = copy(Path::new("/bin/false"), folder.path(), "false", 0o4755);
        let hide = "mount -t proc -o hidepid=1 proc /proc && exec \"$0\" \"$@\"";
        let mut run = as_user(USER, &["unshare", "--mount", "sh", "-c", hide]);
        run.arg(command).args(["run", "--url", "mem://t", "a", "--"]).arg(program);
        assert_eq!(outcome(&mut run).await, (1, String::new(), String::new()));
    })
    .await;
}

/// Threads are started by `clone3`, and processes by `clone`. A thread writes the messages. Without it only the last one is
/// written, and the command runs.
#[tokio::test]
async fn a_command_runs_if_no_thread_can_be_started() {
    limit_if(have_strace(), async {
        let folder = support::folder();
        let trace = folder.path().join("trace");
        let mut run = at_a_prompt("strace");
        run.args(["-f", "-qq", "-e", "trace=clone3", "-e", "inject=clone3:error=EAGAIN", "-o"]).arg(&trace);
        run.args([env!("CARGO_BIN_EXE_zlock"), "run", "-v", "--url", "mem://t", "a", "--", "echo", "ran"]);
        let expected = (0, "ran\n".to_owned(), "zlock: /a: released\n".to_owned());
        assert_eq!(outcome(run.kill_on_drop(true)).await, expected);
        let trace = std::fs::read_to_string(trace).unwrap();
        assert!(trace.contains("EAGAIN"), "no thread was needed: {trace}");
    })
    .await;
}

/// With room for the front only, for front and keeper, and for these and the thread that writes messages.
#[tokio::test]
async fn a_process_that_the_system_refuses_is_no_fault_of_the_command() {
    limit_if(have_root(), async {
        let (_folder, command) = folder();
        for room in 1..=3 {
            // Processes of an earlier run may not be reaped yet.
            let user = (100_000 + 3 * std::process::id() + room).to_string();
            let mut run = as_user(&user, &["prlimit", &format!("--nproc={room}")]);
            run.arg(&command).args(["run", "-v", "--url", "mem://t", "a", "--", "echo", "ran"]);
            let (code, output, message) = outcome(&mut run).await;
            assert_eq!((code, &*output), (125, ""), "{room}: {message}");
            let last = message.lines().last().unwrap_or_default();
            assert!(last.contains("Resource temporarily unavailable"), "{room}: {message}");
        }
    })
    .await;
}

/// The library for ZooKeeper starts threads, and panics if it cannot.
#[tokio::test]
async fn without_threads_no_server_is_asked() {
    limit_if(have_root(), async {
        let (_folder, command) = folder();
        let url = "zk://127.0.0.1:1?connect_timeout=300ms";
        for (room, args) in [(2, &["ls"][..]), (3, &["run", "a", "--", "echo", "ran"])] {
            let user = (200_000 + 4 * std::process::id() + room).to_string();
            let mut run = as_user(&user, &["prlimit", &format!("--nproc={room}")]);
            let (code, output, message) = outcome(run.arg(&command).args(args).env("ZLOCK_URL", url)).await;
            assert_eq!((code, &*output, message.lines().count()), (125, "", 1), "{room}: {message}");
            assert!(message.contains("threads: Resource temporarily unavailable"), "{room}: {message}");
        }
    })
    .await;
}

#[tokio::test]
async fn without_files_nothing_is_started() {
    limit(async {
        for files in 7..=24 {
            for args in
                [&["run", "--url", "mem://t", "a", "--", "echo", "ran"][..], &["ls", "--url", "mem://t"]]
            {
                let mut run = at_a_prompt("prlimit");
                run.arg(format!("--nofile={files}")).arg(env!("CARGO_BIN_EXE_zlock")).args(args);
                let (code, output, message) = outcome(run.kill_on_drop(true)).await;
                assert_eq!((code, &*output, message.lines().count()), (125, "", 1), "{files}: {message}");
                assert!(message.contains("files: Too many open files"), "{files}: {message}");
            }
        }
    })
    .await;
}

/// A message that has no room is lost, and nothing else. The command is killed by the signal, as without zlock.
#[tokio::test]
async fn a_file_that_may_not_grow_ends_no_run() {
    limit(async {
        let folder = support::folder();
        let script = "grep SigIgn /proc/self/status; echo too much > $0";
        let run = |program: &str, file: &str| {
            let mut run = at_a_prompt("prlimit");
            run.args(["--fsize=0", program]).env("ZLOCK_URL", "mem://t").kill_on_drop(true);
            let messages = std::fs::File::create(folder.path().join(file)).unwrap();
            run.stdout(std::process::Stdio::piped()).stderr(messages);
            run
        };
        let file = folder.path().join("full");
        let mut alone = run("sh", "alone");
        alone.args(["-c", script]).arg(&file);
        let mut locked = run(env!("CARGO_BIN_EXE_zlock"), "locked");
        locked.args(["run", "-v", "a", "--", "sh", "-c", script]).arg(&file);
        let alone = alone.spawn().unwrap().wait_with_output().await.unwrap();
        let locked = locked.spawn().unwrap().wait_with_output().await.unwrap();
        assert_eq!(alone.status.signal(), Some(libc::SIGXFSZ));
        assert_eq!(locked.status.code(), Some(128 + libc::SIGXFSZ), "{:?}", locked.status);
        let mask = String::from_utf8(locked.stdout).unwrap();
        let mask = u64::from_str_radix(mask.trim().trim_start_matches("SigIgn:").trim(), 16).unwrap();
        assert_eq!(mask & 1 << (libc::SIGXFSZ - 1), 0, "the command ignores the signal");
    })
    .await;
}
