//! `zlock ls`, `who`, `revoke` and `watch` on real servers, with holders that use zlock and holders that do not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use zlock_testkit::{etcd_or_skip, etcdctl, limit, postgres_or_skip, zookeeper_or_skip};
use zookeeper_client::{Acls, AuthId, CreateMode, Permission};

use crate::support::{PidFile, folder, number_in, outcome, pid_of, send, unique_name, zlock};

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
    let file = PidFile::new();
    let script = format!("echo $$ > {file}; exec sleep 1000");
    let run = |file_script: &str| {
        let mut run = zlock(&["run", "--url", url, "--shell", "ask/held", "--", file_script]);
        run.stderr(Stdio::null());
        run
    };
    let holder = run(&script).spawn().unwrap();
    let command = file.number().await;
    let mut waiter = run("true").env("ZLOCK_NAME", "orders-7").spawn().unwrap();
    let found = until(url, "ask/held", 2).await;
    assert_eq!(found[1]["data"], "orders-7 (true)");
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
    let file = PidFile::new();
    let script = format!("trap '' TERM; echo $$ > {file}; while :; do sleep 0.01; done");
    let args = ["run", "--url", url, "--shell", "ask/forced", "--", &script];
    let holder = zlock(&args).stderr(Stdio::piped()).spawn().unwrap();
    let command = file.number().await;
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

/// Variables and arguments may be secret: nobody sees more than the name of the program.
async fn a_secret_is_in_no_node(url: &str) {
    for (n, (program, script)) in [
        (" (sleep)", "PGPASSWORD=hunter2 /bin/sleep 1000"),
        (" (sh)", "PGPASSWORD='hunter2 hunter2 hunter2' sleep 1000"),
        (" (sh)", "PGPASSWORD=$(echo hunter2) sleep 1000"),
        (" (sleep)", "sleep 1000;hunter2"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("ask/secret{n}");
        let run = ["run", "--url", url, "--shell", &name, "--", script];
        let holder = zlock(&run).stderr(Stdio::null()).spawn().unwrap();
        let found = until(url, &name, 1).await;
        let data = found[0]["data"].as_str().unwrap();
        assert!(data.ends_with(&format!("pid {}{program}", pid_of(&holder))), "{script}: {data}");
        assert!(!found[0].to_string().contains("hunter2"), "{script}: {data}");
    }
}

/// Names that would change what a terminal shows around them.
async fn a_name_cannot_change_what_is_shown(url: &str) {
    let (name, shown) = ("ask/a\u{202e}b\u{2028}c", "/ask/a\u{fffd}b\u{fffd}c");
    let holder = zlock(&["run", "-v", "--url", url, name, "--", "sleep", "1000"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until(url, name, 1).await;
    for args in [&["ls"][..], &["revoke", "--force", "--token", "1", name], &["doctor", name]] {
        let (_, stdout, stderr) = outcome(zlock(args).args(["--url", url])).await;
        assert!(stdout.contains(shown) && stderr.is_empty(), "{args:?}: {stdout}{stderr}");
        assert!(!stdout.contains(['\u{202e}', '\u{2028}']), "{args:?}: {stdout}");
        let (_, stdout, _) = outcome(zlock(args).args(["--json", "--url", url])).await;
        assert!(stdout.contains(r"/ask/a\u202eb\u2028c") && stdout.is_ascii(), "{args:?}: {stdout}");
    }
    send(pid_of(&holder), rustix::process::Signal::TERM);
    let said = String::from_utf8(holder.wait_with_output().await.unwrap().stderr).unwrap();
    assert!(said.contains(shown) && !said.contains(['\u{202e}', '\u{2028}']), "{said}");
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
            [("--no-wait", &[][..], 124), ("--wait=1s", &[], 124), ("--no-wait", &["--on-busy", "0"], 0)]
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

on_each_url! {
    held_and_waited_for,
    forced,
    watched,
    kinds,
    a_secret_is_in_no_node,
    a_name_cannot_change_what_is_shown,
}

mod zookeeper {
    use super::*;

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

    /// Nodes of others, which this user may not read, are counted.
    #[tokio::test]
    async fn what_may_not_be_read_is_left_out() {
        limit(async {
            let Some(server) = zookeeper_or_skip().await else { return };
            let root = format!("/{}", unique_name());
            let other = zookeeper_client::Client::connector().with_auth("digest", b"other:secret");
            let other = other.connect(&server.connect_string()).await.unwrap();
            let acl = [zookeeper_client::Acl::new(Permission::ALL, AuthId::authed())];
            let (all, one) = (Acls::anyone_all(), Acls::new(&acl));
            let (open, closed) =
                (CreateMode::Persistent.with_acls(all), CreateMode::Persistent.with_acls(one));
            other.create(&root, b"", &open).await.unwrap();
            for (path, options) in [("a", &closed), ("b", &open), ("b/c", &closed), ("d", &open)] {
                other.create(&format!("{root}/{path}"), b"", options).await.unwrap();
            }
            let place = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            other.create(&format!("{root}/d/lock-"), b"", &place).await.unwrap();
            let url = format!("zk://{}{root}", server.addr());
            let (code, stdout, stderr) = outcome(&mut zlock(&["ls", "--url", &url])).await;
            let expected = "zlock: paths that may not be read are left out: 2: /a, /b/c\n";
            assert_eq!((code, &*stderr), (0, expected), "{stdout}");
            assert!(stdout.lines().count() == 2 && stdout.contains("/d"), "{stdout}");
            let (code, locks) = json(&url, &["ls"]).await;
            assert_eq!(
                (code, &locks["unreadable"], &locks["locks"][0]["lock"]),
                (0, &2.into(), &"/d".into())
            );
            let (code, stdout, _) = outcome(&mut zlock(&["doctor", "--url", &url])).await;
            assert!(code == 0 && stdout.contains("not checked: paths that may not be read: 2: "), "{stdout}");
            // What was asked for is not left out.
            let (code, stdout, stderr) = outcome(&mut zlock(&["ls", "--url", &url, "a"])).await;
            assert!(code == 125 && stderr.contains("/a: ZooKeeper: "), "{stdout}{stderr}");
        })
        .await;
    }

    /// More nodes than there are requests in flight, at two levels, some of them with waiters.
    #[tokio::test]
    async fn many_locks_are_all_listed() {
        limit(async {
            let Some(server) = zookeeper_or_skip().await else { return };
            let root = format!("/{}", unique_name());
            let raw = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
            let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
            let place = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            raw.create(&root, b"", &persistent).await.unwrap();
            for group in 0..20 {
                let group = format!("{root}/{group}");
                raw.create(&group, b"", &persistent).await.unwrap();
                let paths: Vec<_> = (0..30).map(|lock| format!("{group}/{lock}")).collect();
                for path in &paths {
                    raw.create(path, b"", &persistent).await.unwrap();
                }
                for path in paths.iter().chain(&paths[..10]) {
                    raw.create(&format!("{path}/lock-"), b"", &place).await.unwrap();
                }
            }
            all_are_listed(&format!("zk://{}{root}", server.addr())).await;
        })
        .await;
    }
}

mod etcd {
    use super::*;

    /// More keys than a page has, at two levels, some of them with waiters.
    #[tokio::test]
    async fn many_locks_are_all_listed() {
        limit(async {
            let Some(server) = etcd_or_skip().await else { return };
            let root = format!("/{}", unique_name());
            let mut raw = etcd_client::Client::connect([server.connect_string()], None).await.unwrap();
            let (one, two) =
                (raw.lease_grant(600, None).await.unwrap(), raw.lease_grant(600, None).await.unwrap());
            for group in 0..20 {
                for lock in 0..30 {
                    let leases = if lock < 10 { &[one.id(), two.id()][..] } else { &[one.id()] };
                    for lease in leases {
                        let key = format!("{root}/{group}/{lock}/{lease:x}");
                        let options = etcd_client::PutOptions::new().with_lease(*lease);
                        raw.put(key, "", Some(options)).await.unwrap();
                    }
                    raw.put(format!("{root}/{group}/{lock}/config"), "x", None).await.unwrap();
                }
                // A lock above the others, among whose keys theirs are.
                for lease in [one.id(), two.id()] {
                    let options = etcd_client::PutOptions::new().with_lease(lease);
                    raw.put(format!("{root}/{group}/{lease:x}"), "", Some(options)).await.unwrap();
                }
            }
            let url = format!("etcd://{}{root}", server.addr());
            let (_, locks) = json(&url, &["ls"]).await;
            let upper = locks["locks"].as_array().unwrap().iter();
            let upper = upper.filter(|lock| lock["lock"].as_str().unwrap().matches('/').count() == 1);
            assert!(upper.clone().all(|lock| lock["holders"] == 1 && lock["waiters"] == 1), "{locks}");
            assert_eq!(upper.count(), 20);
            for group in 0..20 {
                let prefix = format!("{root}/{group}/{:x}", one.id());
                raw.delete(prefix, None).await.unwrap();
                raw.delete(format!("{root}/{group}/{:x}", two.id()), None).await.unwrap();
            }
            all_are_listed(&url).await;
            let (code, stdout, _) = outcome(&mut zlock(&["doctor", "--url", &url])).await;
            assert!(code == 1 && stdout.contains("foreign keys: 600: /0/0/config, "), "{stdout}");
        })
        .await;
    }

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

mod postgres {
    use super::*;

    /// Locks at two levels, some of them with waiters.
    #[tokio::test]
    async fn many_locks_are_all_listed() {
        limit(async {
            let Some(server) = postgres_or_skip().await else { return };
            let name = unique_name();
            let url = support::postgres_url(&name).await.unwrap();
            let sql = format!(
                "INSERT INTO zlock.session SELECT n, s.incarnation, 86400000 FROM generate_series(9001, 9002) n,
                     (SELECT id AS incarnation FROM zlock.incarnation ORDER BY n DESC LIMIT 1) s ON CONFLICT DO NOTHING;
                 INSERT INTO zlock.beat SELECT n, 1, 86400000, clock_timestamp() FROM generate_series(9001, 9002) n
                     ON CONFLICT DO NOTHING;
                 INSERT INTO zlock.entry (id, scope, created, changed, session, kind, label, path, key, data)
                 SELECT decode(md5(id::text), 'hex'),
                     substr(sha256((SELECT salt FROM zlock.setting) || '\\x10' || convert_to(path, 'UTF8')), 1, 16), n, n, session, 0,
                     'lock', convert_to(path, 'UTF8'), convert_to(id::text, 'UTF8'), ''
                 FROM (SELECT nextval('zlock.number') AS n, gen_random_uuid() AS id, path, session FROM (
                     SELECT format('/{name}/%s/%s', g, l) AS path, session
                     FROM generate_series(0, 19) g, generate_series(0, 29) l, generate_series(9001, 9002) session
                     WHERE session = 9001 OR l < 10
                     UNION ALL SELECT '/{name}x/1', 9001) made) named;"
            );
            server.sql(&sql).await;
            all_are_listed(&url).await;
            let (_, locks) = json(&url, &["ls", "7"]).await;
            assert_eq!(locks["locks"].as_array().unwrap().len(), 30, "{locks}");
            let (_, one) = json(&url, &["ls", "7/3"]).await;
            assert_eq!(one["locks"].as_array().unwrap().len(), 1, "{one}");
            let sql = format!("DELETE FROM zlock.entry WHERE starts_with(convert_from(path, 'UTF8'), '/{name}')");
            server.sql(&sql).await;
        })
        .await;
    }

    /// A script's own transaction depends on the lock.
    #[tokio::test]
    async fn a_script_has_what_the_fence_takes() {
        limit(async {
            let Some(server) = postgres_or_skip().await else { return };
            let Some(url) = support::postgres_url(&unique_name()).await else { return };
            let (folder, script) = (folder(), "echo $ZLOCK_NODE > $FILE; exec sleep 1000");
            let file = folder.path().join("node");
            let mut run = zlock(&["run", "--url", &url, "--shell", "ask/fence", "--", script]);
            let holder = run.env("FILE", &file).stderr(Stdio::null()).spawn().unwrap();
            let node = support::written(&file).await;
            let fence = format!("SELECT zlock.fence('{}')", node.trim());
            server.sql(&fence).await;
            send(pid_of(&holder), rustix::process::Signal::TERM);
            assert_eq!(support::exit_code(holder).await, 143);
            let error = server.try_sql(&fence).await.unwrap_err();
            assert!(error.contains("the lock is not held any more"), "{error}");
        })
        .await;
    }
}

/// Checks the listing of 20 groups of 30 locks, the first ten of which have a waiter.
async fn all_are_listed(url: &str) {
    let (code, locks) = json(url, &["ls"]).await;
    let locks = locks["locks"].as_array().unwrap();
    let names: std::collections::BTreeSet<_> =
        locks.iter().map(|lock| lock["lock"].as_str().unwrap()).collect();
    assert_eq!((code, locks.len(), names.len()), (0, 600, 600));
    for lock in locks {
        let number: u32 = lock["lock"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
        assert_eq!(
            (&lock["holders"], &lock["waiters"]),
            (&1.into(), &u32::from(number < 10).into()),
            "{lock}"
        );
    }
    let (_, table, _) = outcome(&mut zlock(&["ls", "--url", url])).await;
    assert_eq!((table.lines().count(), table.lines().next()), (601, Some("HOLDERS  WAITERS  LOCK")));
}
