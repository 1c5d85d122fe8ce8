//! `zlock run` with a lock in a file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use zlock_testkit::limit;

use crate::support::{eventually, exit_code, folder, number_in, outcome, pid_of, send, zlock};

fn url(folder: &Path) -> String {
    format!("file://{}/locks", folder.display())
}

#[tokio::test]
async fn one_command_at_a_time_runs_on_a_machine() {
    limit(async {
        let folder = folder();
        let (url, pid) = (url(folder.path()), folder.path().join("pid"));
        let script = format!("echo $$ > {}; exec sleep 1000", pid.display());
        let mut holder =
            zlock(&["run", "--url", &url, "--shell", "jobs/backup", "--", &script]).spawn().unwrap();
        let command = number_in(&pid).await;
        assert_eq!(pid_of(&holder), command, "the process has become the command");
        let run = |options: &[&str], name: &str| {
            let mut run = zlock(&["run", "--url", &url]);
            run.args(options).args([name, "--", "printenv", "ZLOCK_TOKEN"]);
            run
        };
        for options in [&["--no-wait"][..], &["--wait", "100ms"], &["--no-wait", "--shared"]] {
            let (code, _, error) = outcome(&mut run(options, "jobs/backup")).await;
            assert_eq!((code, &*error), (124, "zlock: /jobs/backup: another client holds the lock\n"));
        }
        // Neither its parent nor a lock whose name looks like the file's.
        for other in ["jobs", "jobs%2Fbackup"] {
            assert_eq!(outcome(&mut run(&["--no-wait"], other)).await, (0, "1\n".to_owned(), String::new()));
        }
        let waits = run(&[], "jobs/backup").stdout(Stdio::piped()).spawn().unwrap();
        send(pid_of(&holder), Signal::KILL);
        assert_eq!(holder.wait().await.unwrap().signal(), Some(9));
        let ended = waits.wait_with_output().await.unwrap();
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(0), &b"2\n"[..]));
    })
    .await;
}

/// Whoever waits for a file that was deleted would run beside the holder of the next file.
#[tokio::test]
async fn a_waiter_waits_for_the_file_that_others_lock() {
    limit(async {
        let folder = folder();
        let (url, file) = (url(folder.path()), folder.path().join("locks/report.lock"));
        let run = |options: &[&str], pid: &Path| {
            let script = format!("echo $$ > {}; exec sleep 1000", pid.display());
            let mut run = zlock(&["run", "--url", &url]);
            run.args(options).args(["--shell", "report", "--", &script]);
            run.spawn().unwrap()
        };
        let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
        let mut holder = run(&[], &one);
        number_in(&one).await;
        let mut waiter = run(&[], &two);
        let has_opened = || {
            let opened = std::fs::read_dir(format!("/proc/{}/fd", pid_of(&waiter))).unwrap();
            let mut opened = opened.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
            opened.any(|one| one == file).then_some(())
        };
        eventually("a waiter", has_opened).await;
        std::fs::remove_file(&file).unwrap();
        let mut other = run(&["--no-wait"], &three);
        number_in(&three).await;
        send(pid_of(&holder), Signal::KILL);
        holder.wait().await.unwrap();
        eventually("a waiter for the new file", has_opened).await;
        assert!(!two.exists(), "two commands run");
        send(pid_of(&other), Signal::KILL);
        other.wait().await.unwrap();
        number_in(&two).await;
        send(pid_of(&waiter), Signal::KILL);
        waiter.wait().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn readers_share_and_a_process_that_is_left_keeps_the_lock() {
    limit(async {
        let folder = folder();
        let (url, pid) = (url(folder.path()), folder.path().join("pid"));
        let script = format!("sleep 1000 & echo $! > {}", pid.display());
        let left = zlock(&["run", "--url", &url, "--shared", "--shell", "report", "--", &script]).spawn();
        assert_eq!(exit_code(left.unwrap()).await, 0);
        let sleeps = number_in(&pid).await;
        let run = |option: &str| zlock(&["run", "--url", &url, "--no-wait", option, "report", "--", "true"]);
        assert_eq!(outcome(&mut run("--shared")).await.0, 0);
        assert_eq!(outcome(&mut run("--on-busy=75")).await.0, 75);
        send(sleeps, Signal::KILL);
        support::is_dead(sleeps).await;
        assert_eq!(outcome(&mut run("--on-busy=75")).await.0, 0);
    })
    .await;
}

#[tokio::test]
async fn what_needs_a_server_is_refused() {
    limit(async {
        let folder = folder();
        let url = url(folder.path());
        for (args, says) in [
            (&["run", "--url", &url, "--tick", "1h", "x", "--", "true"][..], "--tick needs a server"),
            (&["run", "--url", &url, "--permits", "1/2", "x", "--", "true"], "--permits needs a server"),
            (&["lead", "--url", &url, "x", "--", "true"], "lead needs a server"),
            (&["join", "--url", &url, "x", "w7", "--", "true"], "join needs a server"),
            (&["run", "--url", "file://locks", "x", "--", "true"], "file://locks: expected an absolute path"),
            (&["who", "--url", &url, "x"], "only zlock run locks files"),
        ] {
            let (code, _, error) = outcome(&mut zlock(args)).await;
            assert!(code == 125 && error.contains(says), "{args:?}: {code} {error}");
        }
    })
    .await;
}

/// The number of the next holder would be that of an earlier one.
#[tokio::test]
async fn a_file_with_something_else_is_refused() {
    limit(async {
        let folder = folder();
        let (url, locks) = (url(folder.path()), folder.path().join("locks"));
        std::fs::create_dir(&locks).unwrap();
        std::fs::write(locks.join("report.lock"), "hello\n").unwrap();
        let (code, _, error) = outcome(&mut zlock(&["run", "--url", &url, "report", "--", "true"])).await;
        assert_eq!(code, 125);
        assert!(error.contains("report.lock") && error.contains("something else than a number"), "{error}");
        assert_eq!(std::fs::read_to_string(locks.join("report.lock")).unwrap(), "hello\n");
    })
    .await;
}
