//! `zlock join` and `zlock members`, on real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use zlock_testkit::{etcd_or_skip, limit, zookeeper_or_skip};
use zookeeper_client::{Acls, CreateMode};

use crate::support::{POLL, folder, outcome, pid_of, send, zlock};

/// A member whose command writes a line when it begins, and runs until it is stopped.
fn joins(url: &str, id: &str, payload: &str, lines: &Path, args: &[&str]) -> Child {
    let script = format!("echo {payload} $ZLOCK_PATH >> {}; exec sleep 1000", lines.display());
    let mut join = zlock(&["join", "--url", url, "--payload", payload, "--kill-after", "200ms", "--shell"]);
    join.args(args).args(["app/workers", id, "--", &script]).stderr(Stdio::null()).spawn().unwrap()
}

fn members(url: &str, args: &[&str]) -> Command {
    let mut command = zlock(&["members", "--url", url]);
    command.args(args).arg("app/workers");
    command
}

/// Waits until this many commands have begun, and returns the last line.
async fn begun(lines: &Path, count: usize) -> String {
    loop {
        let text = std::fs::read_to_string(lines).unwrap_or_default();
        if text.ends_with('\n') && text.lines().count() >= count {
            return text.lines().last().unwrap().to_owned();
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn members_join_wait_and_take_over(url: &str) {
    let url = &support::with(url, "session_timeout=4s");
    let folder = folder();
    let lines = folder.path().join("lines");
    let (code, text, _) = outcome(&mut members(url, &["--json"])).await;
    assert_eq!((code, &*text), (0, "{\"members\":[]}\n"));
    let mut watch = members(url, &["--watch", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = async || -> Vec<String> {
        let view: Value = serde_json::from_str(&seen.next_line().await.unwrap().unwrap()).unwrap();
        let text = |member: &Value| format!("{}={}", member["id"], member["payload"]).replace('"', "");
        view["members"].as_array().unwrap().iter().map(text).collect()
    };
    assert_eq!(next().await, [""; 0]);

    let mut one = joins(url, "w7", "one", &lines, &[]);
    assert!(begun(&lines, 1).await.ends_with("one /app/workers/w7"));
    assert_eq!(next().await, ["w7=one"]);
    let (code, text, _) = outcome(&mut members(url, &[])).await;
    let columns: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!((code, &*columns[0]), (0, &["ID", "TOKEN", "PAYLOAD"][..]));
    assert_eq!((columns.len(), columns[1][0], columns[1][2]), (2, "w7", "one"));

    // Its ID is taken.
    let mut refused = zlock(&["join", "--url", url, "--no-wait", "--kill-after", "200ms"]);
    refused.args(["app/workers", "w7", "--", "true"]);
    let (code, _, error) = outcome(&mut refused).await;
    assert_eq!(code, 124, "{error}");
    assert!(error.contains("/app/workers/w7: the ID is taken: the session"), "{error}");
    let mut waits = joins(url, "w7", "waits", &lines, &[]);

    // All of it is killed, and starts again inside the old session. The one that waits goes on waiting.
    let keeper = support::keeper_of(pid_of(&one)).await;
    send(pid_of(&one), Signal::STOP);
    send(keeper, Signal::KILL);
    send(pid_of(&one), Signal::KILL);
    one.wait().await.unwrap();
    let mut two = joins(url, "w7", "two", &lines, &["--take-over"]);
    assert!(begun(&lines, 2).await.starts_with("two "));
    assert_eq!(next().await, ["w7=two"]);
    send(pid_of(&two), Signal::TERM);
    assert_eq!(two.wait().await.unwrap().code(), Some(128 + 15));
    assert!(begun(&lines, 3).await.starts_with("waits "));
    while next().await != ["w7=waits"] {}
    send(pid_of(&waits), Signal::TERM);
    waits.wait().await.unwrap();
    while !next().await.is_empty() {}
    watch.kill().await.unwrap();
}

/// The front kills a keeper that hangs, whose session lasts a little longer. That is not another client.
#[tokio::test]
async fn a_member_waits_for_its_own_last_session_to_end() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/hangs?session_timeout=2s", server.connect_string());
        let folder = folder();
        let lines = folder.path().join("lines");
        let mut one = joins(&url, "w7", "one", &lines, &["--no-wait"]);
        begun(&lines, 1).await;
        send(support::keeper_of(pid_of(&one)).await, Signal::STOP);
        assert!(begun(&lines, 2).await.starts_with("one "));
        // Then another client takes the ID, and keeps it.
        let mut two = joins(&url, "w7", "two", &lines, &["--take-over"]);
        assert_eq!(one.wait().await.unwrap().code(), Some(124));
        assert!(begun(&lines, 3).await.starts_with("two "));
        send(pid_of(&two), Signal::TERM);
        two.wait().await.unwrap();
    })
    .await;
}

/// Two members with one ID do not end each other for ever: the one that has lost it to a living one ends.
async fn the_loser_of_a_take_over_ends(url: &str) {
    let url = &support::with(url, "session_timeout=4s");
    let folder = folder();
    let lines = folder.path().join("lines");
    let script = format!("echo one >> {}; exec sleep 1000", lines.display());
    let mut one = zlock(&["join", "--url", url, "--take-over", "--kill-after", "200ms", "--shell"]);
    let one = one.args(["app/workers", "w7", "--", &script]).stderr(Stdio::piped()).spawn().unwrap();
    begun(&lines, 1).await;
    let mut two = joins(url, "w7", "two", &lines, &["--take-over"]);
    let ended = one.wait_with_output().await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(123), "{said}");
    assert!(said.contains("/app/workers/w7: the ID is taken: the session"), "{said}");
    assert!(said.contains("; the command was stopped"), "{said}");
    assert!(begun(&lines, 2).await.starts_with("two "));
    let (_, text, _) = outcome(&mut members(url, &["--json"])).await;
    assert!(text.contains("\"payload\":\"two\""), "{text}");
    // Nor does one that begins again without knowing what it has lost its ID to.
    let mut again = zlock(&["join", "--url", url, "--take-over", "--kill-after", "200ms"]);
    let (code, _, said) =
        outcome(again.args(["app/workers", "w7", "--", "true"]).env("ZLOCK_AGAIN", "1")).await;
    assert!(code == 123 && said.contains("/app/workers/w7: the ID is taken: the session"), "{code} {said}");
    assert!(two.try_wait().unwrap().is_none());
    send(pid_of(&two), Signal::TERM);
    two.wait().await.unwrap();
}

on_url! { on_zookeeper, support::zookeeper_url(); members_join_wait_and_take_over, the_loser_of_a_take_over_ends, }
on_url! { on_etcd, support::etcd_url(); members_join_wait_and_take_over, the_loser_of_a_take_over_ends, }

/// Take-over replaces members alone. What has the name is said, and not that it is another client.
#[tokio::test]
async fn a_value_with_the_name_is_not_taken_over() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/values", server.connect_string());
        let run = |args: &[&str]| {
            let mut command = zlock(&args[..1]);
            command.args(["--url", &url]).args(&args[1..]);
            command
        };
        let said = "a node that belongs to no session has this name";
        assert_eq!(outcome(&mut run(&["set", "app/workers/w7", "x"])).await.0, 0);
        let (code, _, error) =
            outcome(&mut run(&["join", "--no-wait", "app/workers", "w7", "--", "true"])).await;
        assert!(code == 124 && error.contains(said) && !error.contains("another client"), "{code} {error}");
        let mut join = run(&["join", "--take-over", "app/workers", "w7", "--", "true"]);
        let mut join = join.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(join.stderr.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        assert!(line.contains(said), "{line}");
        send(pid_of(&join), Signal::TERM);
        join.wait().await.unwrap();
        assert_eq!(outcome(&mut run(&["get", "app/workers/w7"])).await.1, "x\n");
    })
    .await;
}

/// A node that belongs to no session has the ID. No view of the members shows it.
#[tokio::test]
async fn an_id_that_no_member_has_is_tried_again_after_a_pause() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let raw = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for path in ["/nobody", "/nobody/app", "/nobody/app/workers", "/nobody/app/workers/w7"] {
            raw.create(path, b"", &options).await.unwrap();
        }
        let began = Instant::now();
        let url = format!("zk://{}/nobody", server.connect_string());
        let mut join = zlock(&["join", "--url", &url, "app/workers", "w7", "--", "true"]);
        let mut join = join.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(join.stderr.take().unwrap()).lines();
        for _ in 0..3 {
            let line = said.next_line().await.unwrap().unwrap();
            assert!(line.contains("a node that belongs to no session has this name; retrying"), "{line}");
        }
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
        raw.delete("/nobody/app/workers/w7", None).await.unwrap();
        assert_eq!(join.wait().await.unwrap().code(), Some(0));
    })
    .await;
}

/// The command ends by itself: so does zlock, with its code.
#[tokio::test]
async fn the_end_of_the_command_is_the_end() {
    limit(async {
        for (script, code) in [("exit 0", 0), ("exit 7", 7)] {
            let mut join =
                zlock(&["join", "--url", "mem://test", "--shell", "app/workers", "w7", "--", script]);
            assert_eq!(outcome(&mut join).await, (code, String::new(), String::new()));
        }
    })
    .await;
}
