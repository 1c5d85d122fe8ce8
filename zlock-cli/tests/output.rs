//! Output that cannot be written is a failure, and hides no result. A reader that is gone is none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::process::Stdio;

use tokio::process::Command;
use zlock_testkit::{Port, limit};

use crate::support::{pid_of, zlock};

/// Runs the command with a standard output that takes nothing. Returns its exit code and its messages.
async fn without_output(command: &mut Command, stdout: Stdio) -> (i32, String) {
    let output = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().await.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn full_disk() -> Stdio {
    std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

fn closed_pipe() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// Checks a subcommand whose result has this exit code.
async fn check(args: &[&str], result: i32) {
    let (code, stderr) = without_output(&mut zlock(args), full_disk()).await;
    assert_eq!(code, if result == 0 { 125 } else { result }, "{args:?}: {stderr}");
    assert!(
        stderr.starts_with("zlock: cannot write to standard output: No space left"),
        "{args:?}: {stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert_eq!(without_output(&mut zlock(args), closed_pipe()).await, (result, String::new()), "{args:?}");
}

#[tokio::test]
async fn pages_and_completions() {
    limit(async {
        for args in [&["man"][..], &["completions", "bash"], &["--help"], &["run", "--help"], &["--version"]]
        {
            check(args, 0).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_bad_result_is_not_lost() {
    limit(async {
        let port = Port::reserve();
        for scheme in ["zk", "etcd"] {
            let url = format!("{scheme}://{}?connect_timeout=300ms", port.addr());
            check(&["doctor", "--url", &url], 1).await;
            check(&["doctor", "--json", "--url", &url], 1).await;
        }
        check(&["revoke", "--url", "mem://t", "a"], 1).await;
        check(&["revoke", "--json", "--url", "mem://t", "a"], 1).await;
    })
    .await;
}

async fn every_subcommand_that_asks(url: &str) {
    let run = ["run", "--url", url, "output/held", "--", "sleep", "1000"];
    let holder = zlock(&run).spawn().unwrap();
    support::keeper_of(pid_of(&holder)).await;
    for json in [&[][..], &["--json"]] {
        for args in [&["ls", "output"][..], &["who", "output/held"], &["watch", "output/held"]] {
            check(&[args, json, &["--url", url]].concat(), 0).await;
        }
    }
    let (code, stderr) =
        without_output(&mut zlock(&["revoke", "--url", url, "output/held"]), full_disk()).await;
    assert_eq!((code, stderr.contains("No space left")), (125, true), "{stderr}");
}

on_each_url! { every_subcommand_that_asks, }
