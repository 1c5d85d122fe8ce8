//! `zlock ls`, `who`, `revoke` and `watch` on real servers, with holders that use zlock and holders that do not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use zlock_testkit::{etcd_or_skip, etcdctl, limit, zookeeper_or_skip};
use zookeeper_client::{Acls, CreateMode};

use crate::support::{folder, number_in, outcome, pid_of, send, zlock};

/// Runs zlock with `--json`. Returns its exit code and its output.
async fn json(url: &str, args: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = outcome(zlock(args).args(["--json", "--url", url])).await;
    (code, serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{args:?}: {stdout}{stderr}")))
}

async fn who(url: &str, name: &str) -> Vec<Value> {
    let (code, who) = json(url, &["who", name]).await;
    assert_eq!(code, 0);
    who["participants"].as_array().unwrap().clone()
}

/// Waits until the lock has this many participants.
async fn until(url: &str, name: &str, count: usize) -> Vec<Value> {
    loop {
        let found = who(url, name).await;
        if found.len() == count {
            return found;
        }
        tokio::time::sleep(support::POLL).await;
    }
}

/// Checks a lock with a `zlock run` that holds it and one that waits for it.
async fn held_and_waited_for(url: &str) {
    let folder = folder();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let run = |file_script: &str| {
        zlock(&["run", "--url", url, "--shell", "ask/held", "--", file_script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let holder = run(&script);
    let command = number_in(&file).await;
    let mut waiter = run("true");
    let found = until(url, "ask/held", 2).await;
    let environment = std::fs::read(format!("/proc/{command}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let variable = |name: &str| {
        environment
            .split('\0')
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .unwrap()
            .to_owned()
    };
    assert_eq!(found[0]["state"], "holds");
    assert_eq!(found[1]["state"], "waits");
    assert_eq!(found[0]["token"].as_u64().unwrap().to_string(), variable("ZLOCK_TOKEN"));
    assert_eq!(found[0]["process"].as_i64().unwrap(), i64::from(pid_of(&holder)));
    assert!(!found[0]["host"].as_str().unwrap().is_empty());
    assert!(found[0]["data"].as_str().unwrap().ends_with("(echo)"), "{}", found[0]);
    assert!(variable("ZLOCK_NODE").ends_with(found[0]["node"].as_str().unwrap()));
    assert_eq!(variable("ZLOCK_PATH"), "/ask/held");

    let (_, locks) = json(url, &["ls", "ask"]).await;
    let locks = locks["locks"].as_array().unwrap().clone();
    assert_eq!(locks.len(), 1, "{locks:?}");
    assert_eq!(
        (&locks[0]["lock"], &locks[0]["holders"], &locks[0]["waiters"]),
        (&"/ask/held".into(), &1.into(), &1.into())
    );
    let (_, table, _) = outcome(zlock(&["ls"]).args(["--url", url])).await;
    assert!(table.contains("HOLDERS") && table.contains("/ask/held") && !table.contains('\x1b'), "{table}");

    // Asked to release, the command gets SIGTERM.
    let (code, asked) = json(url, &["revoke", "ask/held"]).await;
    assert_eq!((code, &asked["asked"]), (0, &1.into()));
    assert_eq!(support::exit_code(holder).await, 143);
    assert!(waiter.wait().await.unwrap().success());
    assert!(until(url, "ask/held", 0).await.is_empty());
    let (code, asked) = json(url, &["revoke", "ask/held"]).await;
    assert_eq!((code, &asked["asked"]), (1, &0.into()));
}

/// When an operator removes the node, the command is killed as soon as zlock notices.
async fn forced(url: &str) {
    let folder = folder();
    let file = folder.path().join("pid");
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 0.01; done", file.display());
    let args = ["run", "--url", url, "--shell", "ask/forced", "--", &script];
    let holder = zlock(&args).stderr(Stdio::piped()).spawn().unwrap();
    let command = number_in(&file).await;
    let token = until(url, "ask/forced", 1).await[0]["token"].as_u64().unwrap();
    let (code, removed) = json(url, &["revoke", "--force", "--token", "1", "ask/forced"]).await;
    assert_eq!((code, &removed["removed"]), (1, &0.into()));
    let (code, removed) =
        json(url, &["revoke", "--force", "--token", &token.to_string(), "ask/forced"]).await;
    assert_eq!((code, &removed["removed"]), (0, &1.into()));
    let output = holder.wait_with_output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(123), "{said}");
    assert!(said.contains("own node deleted") && said.lines().count() == 1, "{said}");
    assert!(!support::is_alive(command));
}

async fn watched(url: &str) {
    let mut watch =
        zlock(&["watch", "--json", "--url", url, "ask/watched"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next =
        async || -> Value { serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap() };
    let run = || {
        zlock(&["run", "--url", url, "ask/watched", "--", "sleep", "1000"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let one = run();
    let held = next().await;
    assert_eq!((&held["event"], &held["process"]), (&"holds".into(), &pid_of(&one).into()));
    let other = run();
    let waits = next().await;
    assert_eq!((&waits["event"], &waits["process"]), (&"waits".into(), &pid_of(&other).into()));
    send(pid_of(&one), rustix::process::Signal::TERM);
    let left = next().await;
    assert_eq!((&left["event"], &left["token"]), (&"left".into(), &held["token"]));
    let holds = next().await;
    assert_eq!((&holds["event"], &holds["token"]), (&"holds".into(), &waits["token"]));
    send(pid_of(&other), rustix::process::Signal::TERM);
    assert_eq!(next().await["event"], "left");
}

/// Shared holders and permits, busy and waiting.
async fn kinds(url: &str) {
    let folder = folder();
    let run = |options: &[&str], name: &str, n: usize| {
        let file = folder.path().join(format!("{}{n}", name.replace('/', "-")));
        let script = format!("echo $$ > {}; exec sleep 1000", file.display());
        let mut command = zlock(&["run", "--url", url, "--shell"]);
        command.args(options).args([name, "--", &script]);
        (command.stderr(Stdio::null()).spawn().unwrap(), file)
    };
    for (options, name, kind) in
        [(&["--shared"][..], "ask/shared", "shared"), (&["--permits", "2/4"], "ask/permits", "2/4")]
    {
        let (_one, file) = run(options, name, 1);
        number_in(&file).await;
        let (_other, file) = run(options, name, 2);
        number_in(&file).await;
        let found = until(url, name, 2).await;
        assert!(found.iter().all(|one| one["state"] == "holds" && one["kind"] == kind), "{found:?}");
        for (wait, busy, code) in
            [("--no-wait", &[][..], 124), ("--wait=200ms", &[], 124), ("--no-wait", &["--on-busy", "0"], 0)]
        {
            let exclusive = if kind == "shared" { &[][..] } else { options };
            let mut command = zlock(&["run", "--url", url, wait]);
            let (actual, _, stderr) =
                outcome(command.args(exclusive).args(busy).args([name, "--", "false"])).await;
            assert_eq!((actual, stderr.is_empty()), (code, code == 0), "{name} {wait}: {stderr}");
        }
        if kind != "shared" {
            // All clients must use the same maximum.
            let args = ["run", "--url", url, "--permits", "1/5", name, "--", "true"];
            let (code, _, stderr) = outcome(&mut zlock(&args)).await;
            assert_eq!(code, 125, "{stderr}");
            assert!(stderr.contains("another maximum"), "{stderr}");
        }
    }
}

mod zookeeper {
    use super::*;

    async fn url() -> Option<String> {
        Some(format!("zk://{}/{}", zookeeper_or_skip().await?.addr(), unique_name()))
    }

    macro_rules! cases {
        ($($case:ident),*) => {$(
            #[tokio::test]
            async fn $case() {
                limit(async {
                    if let Some(url) = url().await {
                        super::$case(&url).await;
                    }
                })
                .await;
            }
        )*};
    }

    cases!(held_and_waited_for, forced, watched, kinds);

    /// Shows nodes of Curator and kazoo, and leaves nothing behind.
    #[tokio::test]
    async fn foreign_holders_are_shown_and_nothing_is_made() {
        limit(async {
            let Some(server) = zookeeper_or_skip().await else { return };
            let raw = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
            let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
            raw.create("/foreign", b"", &persistent).await.unwrap();
            let url = format!("zk://{}", server.addr());
            assert!(who(&url, "foreign/lock").await.is_empty());
            assert_eq!(raw.list_children("/foreign").await.unwrap(), Vec::<String>::new());

            raw.create("/foreign/lock", b"", &persistent).await.unwrap();
            let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            let curator = "/foreign/lock/_c_0f5d5a2e-9a0b-4a1c-8d2e-3f4a5b6c7d8e-lock-";
            raw.create(curator, b"10.1.2.3", &ephemeral).await.unwrap();
            let kazoo = "/foreign/lock/0123456789abcdef0123456789abcdef__lock__";
            raw.create(kazoo, b"\x1b[31mred", &ephemeral).await.unwrap();
            let found = who(&url, "foreign/lock").await;
            assert_eq!((&found[0]["state"], &found[0]["data"]), (&"holds".into(), &"10.1.2.3".into()));
            assert_eq!((&found[1]["state"], &found[1]["data"]), (&"waits".into(), &"\u{fffd}[31mred".into()));
            let (_, locks) = json(&url, &["ls", "foreign"]).await;
            assert_eq!(locks["locks"][0]["lock"], "/foreign/lock");

            // One of them is removed, and only that.
            let token = found[0]["token"].as_u64().unwrap().to_string();
            let (code, _) = json(&url, &["revoke", "--force", "--token", &token, "foreign/lock"]).await;
            assert_eq!(code, 0);
            let found = who(&url, "foreign/lock").await;
            assert_eq!((found.len(), &found[0]["state"]), (1, &"holds".into()));
        })
        .await;
    }
}

mod etcd {
    use super::*;

    async fn url() -> Option<String> {
        Some(format!("etcd://{}/{}", etcd_or_skip().await?.addr(), unique_name()))
    }

    macro_rules! cases {
        ($($case:ident),*) => {$(
            #[tokio::test]
            async fn $case() {
                limit(async {
                    if let Some(url) = url().await {
                        super::$case(&url).await;
                    }
                })
                .await;
            }
        )*};
    }

    cases!(held_and_waited_for, forced, watched, kinds);

    #[tokio::test]
    async fn foreign_holders_are_shown_and_nothing_is_made() {
        limit(async {
            let Some(server) = etcd_or_skip().await else { return };
            let url = format!("etcd://{}", server.addr());
            let ctl = || {
                let mut ctl = Command::new(etcdctl());
                ctl.env("ETCDCTL_API", "3")
                    .args(["--endpoints", &server.connect_string()])
                    .kill_on_drop(true);
                ctl
            };
            let keys = async || outcome(ctl().args(["get", "--prefix", "/foreign", "--keys-only"])).await.1;
            assert!(who(&url, "foreign/lock").await.is_empty());
            assert_eq!(json(&url, &["ls", "foreign"]).await.1["locks"], Value::Array(Vec::new()));
            assert_eq!(keys().await, "");

            let mut holder = ctl().args(["lock", "/foreign/lock"]).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
            let key = lines.next_line().await.unwrap().unwrap();
            let mut waiter = zlock(&["run", "--url", &url, "foreign/lock", "--", "true"]).spawn().unwrap();
            let found = until(&url, "foreign/lock", 2).await;
            assert_eq!(found[0]["state"], "holds");
            assert!(key.ends_with(found[0]["node"].as_str().unwrap()), "{key} {found:?}");
            assert_eq!((&found[0]["data"], &found[1]["state"]), (&Value::Null, &"waits".into()));
            let (_, locks) = json(&url, &["ls", "foreign"]).await;
            assert_eq!(locks["locks"][0]["waiters"], 1);
            let token = found[0]["token"].as_u64().unwrap().to_string();
            let (code, _) = json(&url, &["revoke", "--force", "--token", &token, "foreign/lock"]).await;
            assert_eq!(code, 0);
            assert!(waiter.wait().await.unwrap().success());
        })
        .await;
    }
}

/// Returns a name that no other test uses.
fn unique_name() -> String {
    folder().path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned()
}
