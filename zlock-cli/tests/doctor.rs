//! `zlock doctor`, on real servers; completions and the man page.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use serde_json::Value;
use tokio::process::Command;
use zlock_testkit::{Ensemble, Etcd, Port, ZooKeeper, etcdctl, have_etcd, have_zookeeper, limit};
use zookeeper_client::{Acls, CreateMode};

use crate::support::{outcome, zlock};

/// Runs the doctor. Returns its exit code and its findings.
async fn doctor(url: &str, prefix: &[&str]) -> (i32, Vec<Value>) {
    let (code, stdout, stderr) = outcome(zlock(&["doctor", "--json", "--url", url]).args(prefix)).await;
    let all: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    assert_eq!(all["ok"], code == 0, "{all}");
    (code, all["findings"].as_array().unwrap().clone())
}

/// Returns the bad findings, as `check: message`.
fn bad(findings: &[Value]) -> Vec<String> {
    let bad = findings.iter().filter(|finding| finding["ok"] == false);
    bad.map(|finding| {
        assert!(!finding["remedy"].as_str().unwrap().is_empty(), "{finding}");
        format!("{}: {}", finding["check"].as_str().unwrap(), finding["message"].as_str().unwrap())
    })
    .collect()
}

fn message(findings: &[Value], check: &str) -> String {
    let found = findings.iter().find(|finding| finding["check"] == check).unwrap();
    found["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn zookeeper() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let server = ZooKeeper::start().await;
        let url = format!("zk://{}", server.addr());
        let (code, findings) = doctor(&url, &["app"]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        let version = server.version();
        let number = version.split('-').next().unwrap();
        assert_eq!(
            message(&findings, "server"),
            format!("{}: ZooKeeper {number}, standalone", server.addr())
        );
        assert!(message(&findings, "round trip").ends_with("of 20"));
        assert_eq!(message(&findings, "session timeout"), "10s, as requested");

        let raw = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for (path, data) in [("/app/lock", ""), ("/app/lock/lock-0000000007", ""), ("/app/lock/config", "x")]
        {
            raw.create(path, data.as_bytes(), &persistent).await.unwrap();
        }
        // A lock below another lock is not foreign.
        raw.create("/app/lock/below", b"", &persistent).await.unwrap();
        let (code, findings) = doctor(&format!("{url}/?session_timeout=500ms"), &["app"]).await;
        assert_eq!(code, 1);
        assert_eq!(
            bad(&findings),
            [
                "session timeout: 1s instead of 500ms",
                "ownerless nodes: 1: /app/lock/lock-0000000007",
                "foreign nodes: 1: /app/lock/config",
            ]
        );
    })
    .await;
}

/// Locks work, but one server has lost the others.
#[tokio::test]
async fn a_server_that_is_cut_off_is_a_finding() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let ensemble = Ensemble::start_linked(3, ZooKeeper::builder()).await;
        let follower = ensemble.followers().await[0];
        let member = &ensemble.members()[follower];
        ensemble.cut_off(follower);
        let is_alone = async || {
            let answer = member.four_letter_word("srvr").await.unwrap_or_default();
            answer.contains("not currently serving requests")
        };
        while !is_alone().await {
            tokio::time::sleep(support::POLL).await;
        }
        let (_, findings) = doctor(&format!("zk://{}", ensemble.connect_string()), &[]).await;
        let text = "This ZooKeeper instance is not currently serving requests";
        let expected = format!("server: {}: {text}", member.addr());
        assert!(bad(&findings).contains(&expected), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_another_client_holds_shows_no_permission() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let server = ZooKeeper::start().await;
        let url = format!("zk://{}", server.addr());
        let client = zlock::connect(&url).await.unwrap();
        let guard = client.mutex("/app/zlock-doctor").unwrap().acquire().await.unwrap();
        let (code, findings) = doctor(&url, &["app"]).await;
        let bad = bad(&findings);
        assert!(code == 1 && bad.len() == 1 && bad[0].starts_with("permission: "), "{bad:?}");
        assert!(bad[0].contains("/app/zlock-doctor"), "{bad:?}");
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn etcd() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let server = Etcd::start().await;
        let url = format!("etcd://{}/app", server.addr());
        let (code, findings) = doctor(&url, &[]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        let expected = format!("{}: etcd {}, leader, ", server.addr(), server.version());
        assert!(message(&findings, "server").starts_with(&expected), "{findings:?}");
        assert!(message(&findings, "compaction").ends_with("never compacted"));

        let ctl = |args: &[&str]| {
            let mut ctl = Command::new(etcdctl());
            ctl.env("ETCDCTL_API", "3").args(["--endpoints", &server.connect_string()]).args(args);
            ctl.kill_on_drop(true);
            ctl
        };
        for key in ["/app/lock/694d8f0e2b3a4c05", "/app/free/config", "/app/held/config"] {
            assert_eq!(outcome(&mut ctl(&["put", key, "x"])).await.0, 0);
        }
        let run = ["run", "--url", &url, "held", "--", "sleep", "1000"];
        let holder = zlock(&run).spawn().unwrap();
        support::keeper_of(support::pid_of(&holder)).await;
        let revision = message(&findings, "compaction").split([' ', ',']).nth(1).unwrap().to_owned();
        assert_eq!(outcome(&mut ctl(&["compact", &revision])).await.0, 0);
        let (code, findings) = doctor(&url, &[]).await;
        assert_eq!(code, 1);
        assert_eq!(
            bad(&findings),
            ["ownerless keys: 1: /lock/694d8f0e2b3a4c05", "foreign keys: 1: /held/config"]
        );
        assert!(message(&findings, "compaction").ends_with(", compacted"), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_finding() {
    limit(async {
        for scheme in ["zk", "etcd"] {
            let port = Port::reserve();
            let url = format!("{scheme}://{}?connect_timeout=300ms", port.addr());
            let (code, findings) = doctor(&url, &[]).await;
            assert_eq!((code, findings.len()), (1, 1));
            assert!(message(&findings, "reachable").contains("connection refused"), "{findings:?}");
        }
        // As text, with the remedy, and without colours in a pipe.
        let (code, stdout, _) =
            outcome(&mut zlock(&["doctor", "--url", "zk://127.0.0.1:1?connect_timeout=300ms"])).await;
        assert_eq!(code, 1);
        assert!(
            stdout.starts_with("BAD  reachable: ") && stdout.contains("\n     check the hosts"),
            "{stdout}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_bench_runs_only_with_consent() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let server = Etcd::shared().await;
        let url = format!("etcd://{}/bench", server.addr());
        let (code, stdout, stderr) = outcome(&mut zlock(&["bench", &url])).await;
        assert_eq!((code, &*stdout), (125, ""));
        assert!(stderr.contains("add --yes") && stderr.lines().count() == 1, "{stderr}");
        let (code, stdout, stderr) =
            outcome(&mut zlock(&["bench", "--yes", "--json", "--time", "100ms", &url])).await;
        assert_eq!(code, 0, "{stderr}");
        let result: Value = serde_json::from_str(&stdout).unwrap();
        let workloads = result["workloads"].as_array().unwrap();
        assert_eq!(workloads.len(), 3);
        assert!(workloads.iter().all(|one| one["acquisitions"].as_u64().unwrap() >= 1), "{result}");
    })
    .await;
}

#[tokio::test]
async fn completions_and_the_man_page_are_printed() {
    limit(async {
        for (args, part) in [
            (&["completions", "bash"][..], "complete -F _zlock"),
            (&["completions", "zsh"], "#compdef zlock"),
            (&["completions", "fish"], "complete -c zlock"),
            (&["man"], ".TH zlock"),
        ] {
            let (code, stdout, stderr) = outcome(&mut zlock(args)).await;
            assert_eq!((code, &*stderr), (0, ""), "{args:?}");
            assert!(stdout.contains(part), "{args:?}: {stdout}");
        }
        let (_, page, _) = outcome(&mut zlock(&["man"])).await;
        for part in ["run", "\\-\\-kill\\-after", "ZLOCK_URL", "ZLOCK_TOKEN", "128+N"] {
            assert!(page.contains(part), "{part}");
        }
    })
    .await;
}
