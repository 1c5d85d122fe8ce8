//! `zlock lead`, `leader`, `get`, `set` and `watch-value`, on real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use zlock_testkit::{etcd_or_skip, limit};

use crate::support::{POLL, folder, outcome, pid_of, send, zlock, zlock_at};

/// Starts a candidate whose command writes its name and its term, and runs until it is stopped.
fn candidate(url: &str, name: &str, terms: &Path) -> Child {
    let script = format!("echo {name} $ZLOCK_TOKEN >> {}; exec sleep 1000", terms.display());
    let mut lead = zlock(&["lead", "--url", url, "--value", name, "--kill-after", "200ms", "--shell"]);
    lead.args(["app/leader", "--", &script]).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits for the n-th term that a command has written, and returns who leads and its number.
async fn term(terms: &Path, n: usize) -> (String, u64) {
    loop {
        let text = std::fs::read_to_string(terms).unwrap_or_default();
        if let Some(line) = text.lines().nth(n).filter(|_| text.ends_with('\n')) {
            let (name, number) = line.split_once(' ').unwrap();
            return (name.to_owned(), number.parse().unwrap());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until this many candidates are queued up.
async fn queued(url: &str, count: usize) {
    loop {
        let (_, who, _) = outcome(&mut zlock(&["who", "--json", "--url", url, "app/leader"])).await;
        let who: Value = serde_json::from_str(&who).unwrap();
        if who["participants"].as_array().unwrap().len() == count {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

fn lines_of(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap()
}

/// Candidates that step down, are killed, and lose their nodes. The command runs in each term.
async fn lead_again_after_each_loss(url: &str) {
    let url = &support::with(url, "session_timeout=4s");
    let folder = folder();
    let terms = folder.path().join("terms");
    let leader = |args: &[&str]| {
        let mut command = zlock(&["leader", "--url", url]);
        command.args(args).arg("app/leader");
        command
    };
    assert_eq!(outcome(&mut leader(&[])).await, (1, "nobody leads\n".to_owned(), String::new()));
    let mut watch = leader(&["--watch", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = lines_of(&mut watch);
    assert_eq!(next(&mut seen).await["leader"], Value::Null);

    let mut one = candidate(url, "one", &terms);
    let (name, first) = term(&terms, 0).await;
    assert_eq!(name, "one");
    let shown = next(&mut seen).await;
    assert_eq!((&shown["leader"]["value"], &shown["leader"]["term"]), (&"one".into(), &first.into()));
    let (code, text, _) = outcome(&mut leader(&[])).await;
    assert_eq!((code, text), (0, format!("one leads in term {first}\n")));

    let mut two = candidate(url, "two", &terms);
    queued(url, 2).await;
    let (code, text, _) = outcome(&mut leader(&["--step-down"])).await;
    assert_eq!((code, text), (0, format!("asked the leader of term {first} to step down\n")));
    let (name, second) = term(&terms, 1).await;
    assert_eq!((&*name, second > first), ("two", true));

    // The one that stepped down is a candidate again. The leader is killed with its keeper unharmed.
    queued(url, 2).await;
    send(pid_of(&two), Signal::KILL);
    two.wait().await.unwrap();
    let (name, third) = term(&terms, 2).await;
    assert_eq!((&*name, third > second), ("one", true));

    // An operator removes the leader's node.
    let token = third.to_string();
    let revoke = ["revoke", "--url", url, "--force", "--token", &token, "app/leader"];
    assert_eq!(outcome(&mut zlock(&revoke)).await.0, 0);
    let (name, fourth) = term(&terms, 3).await;
    assert_eq!((&*name, fourth > third), ("one", true));
    assert!(one.try_wait().unwrap().is_none());

    // A leader is asked as the holder of a lock is.
    assert_eq!(outcome(&mut zlock(&["revoke", "--url", url, "app/leader"])).await.0, 0);
    let (name, fifth) = term(&terms, 4).await;
    assert_eq!((&*name, fifth > fourth), ("one", true));

    // At most the keeper of the term before is not reaped yet.
    let dead = support::children(pid_of(&one)).into_iter().filter(|pid| !support::is_alive(*pid));
    assert!(dead.count() <= 1);

    // The watch has seen no term twice, and the last one.
    let (mut last, mut values) = (first, Vec::new());
    while last < fifth {
        let shown = next(&mut seen).await;
        if let Some(term) = shown["leader"]["term"].as_u64() {
            assert!(term >= last, "{term} after {last}");
            last = term;
            values.push(shown["leader"]["value"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(values.last().map(String::as_str), Some("one"));
    watch.kill().await.unwrap();

    send(pid_of(&one), Signal::TERM);
    assert_eq!(one.wait().await.unwrap().code(), Some(128 + 15));
    assert_eq!(outcome(&mut leader(&[])).await.0, 1);
    let written = std::fs::read_to_string(&terms).unwrap();
    assert_eq!(written.lines().count(), 5, "{written}");
}

/// The command ends by itself: so does zlock, with its code, and the term is over.
#[tokio::test]
async fn the_end_of_the_command_is_the_end() {
    limit(async {
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 123", 123)] {
            let mut lead = zlock(&["lead", "--url", "mem://test", "--shell", "app/leader", "--", script]);
            assert_eq!(outcome(&mut lead).await, (code, String::new(), String::new()));
        }
    })
    .await;
}

/// A leader is stepping down, and its command still runs, when a signal tells zlock to end. It does not campaign again.
#[tokio::test]
async fn a_signal_ends_a_leader_that_is_stepping_down() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/ends", server.connect_string());
        let folder = folder();
        let terms = folder.path().join("terms");
        // The first SIGTERM is the request to step down, and the second one was forwarded.
        let script = format!(
            "n=0; trap 'n=$((n + 1)); echo asked $n >> {0}' TERM; echo one $ZLOCK_TOKEN >> {0}; \
             while [ $n -lt 2 ]; do sleep 0.01; done",
            terms.display()
        );
        let mut lead = zlock(&["lead", "--url", &url, "--shell", "app/leader", "--", &script]);
        let mut one = lead.stderr(Stdio::null()).spawn().unwrap();
        term(&terms, 0).await;
        let step_down = ["leader", "--url", &url, "--step-down", "app/leader"];
        assert_eq!(outcome(&mut zlock(&step_down)).await.0, 0);
        assert_eq!(term(&terms, 1).await, ("asked".to_owned(), 1));
        send(pid_of(&one), Signal::TERM);
        assert_eq!(one.wait().await.unwrap().code(), Some(128 + 15));
        queued(&url, 0).await;
        let written = std::fs::read_to_string(&terms).unwrap();
        assert_eq!(written.lines().count(), 3, "{written}");
    })
    .await;
}

/// The command ignores the signal, and the term is lost later.
#[tokio::test]
async fn a_signal_ends_a_leader_that_loses_its_term() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/loses?session_timeout=2s", server.connect_string());
        let folder = folder();
        let terms = folder.path().join("terms");
        let script = format!(
            "trap 'echo asked 1 >> {0}' TERM; echo one $ZLOCK_TOKEN >> {0}; while :; do sleep 0.01; done",
            terms.display()
        );
        let mut lead =
            zlock(&["lead", "--url", &url, "--kill-after", "200ms", "--shell", "app/leader", "--"]);
        let mut one = lead.arg(&script).stderr(Stdio::null()).spawn().unwrap();
        term(&terms, 0).await;
        send(pid_of(&one), Signal::TERM);
        assert_eq!(term(&terms, 1).await, ("asked".to_owned(), 1));
        // The front kills a keeper that hangs, and the command.
        send(support::keeper_of(pid_of(&one)).await, Signal::STOP);
        assert_eq!(one.wait().await.unwrap().code(), Some(128 + 15));
        let written = std::fs::read_to_string(&terms).unwrap();
        assert_eq!(written.matches("one").count(), 1, "{written}");
    })
    .await;
}

/// As after an upgrade of the package.
#[tokio::test]
async fn a_candidate_whose_program_was_removed_leads_again() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/upgrade", server.connect_string());
        let folder = folder();
        let (terms, program) = (folder.path().join("terms"), folder.path().join("zlock"));
        // What zlock sets for itself is not in the command's environment.
        let script = format!("echo one$ZLOCK_AGAIN $ZLOCK_TOKEN >> {}; exec sleep 1000", terms.display());
        // Copied by another process: a file that this one has open for writing may be open in children of other tests,
        // and could not be executed.
        let mut copy = tokio::process::Command::new("cp");
        let copied = copy.arg(env!("CARGO_BIN_EXE_zlock")).arg(&program).status().await.unwrap();
        assert!(copied.success());
        let args = ["lead", "--url", &url, "--shell", "app/leader", "--", &script];
        let one = zlock_at(program.to_str().unwrap(), &args).spawn().unwrap();
        term(&terms, 0).await;
        std::fs::remove_file(&program).unwrap();
        // The second time, it begins again from a program that was removed before it began.
        for n in 1..3 {
            let step_down = ["leader", "--url", &url, "--step-down", "app/leader"];
            assert_eq!(outcome(&mut zlock(&step_down)).await.0, 0);
            assert_eq!(term(&terms, n).await.0, "one");
        }
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", pid_of(&one))).unwrap();
        assert_eq!(comm, "zlock\n");
        send(pid_of(&one), Signal::TERM);
        assert_eq!(support::exit_code(one).await, 128 + 15);
    })
    .await;
}

async fn values(url: &str) {
    let run = |args: &[&str]| {
        let mut command = zlock(&args[..1]);
        command.args(["--url", url]).args(&args[1..]);
        command
    };
    assert_eq!(outcome(&mut run(&["get", "app/mode"])).await, (1, String::new(), String::new()));
    let mut watch = run(&["watch-value", "--json", "app/mode"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = lines_of(&mut watch);
    assert_eq!(next(&mut seen).await["value"], Value::Null);
    for text in ["read-only", "two words", ""] {
        assert_eq!(outcome(&mut run(&["set", "app/mode", text])).await, (0, String::new(), String::new()));
        assert_eq!(next(&mut seen).await["value"], text);
        assert_eq!(outcome(&mut run(&["get", "app/mode"])).await, (0, format!("{text}\n"), String::new()));
    }
    let (code, text, _) = outcome(&mut run(&["get", "--json", "app/mode"])).await;
    assert_eq!((code, &*text), (0, "{\"value\":\"\"}\n"));
    // What is no UTF-8 is not lost.
    for (input, json) in [
        (&b"line\n"[..], "{\"value\":\"line\\n\"}\n"),
        (&[0xff, b'x'], "{\"value\":\"\u{fffd}x\",\"value_base64\":\"/3g=\"}\n"),
    ] {
        let mut set = run(&["set", "app/mode", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        set.stdin.take().unwrap().write_all(input).await.unwrap();
        assert_eq!(set.wait().await.unwrap().code(), Some(0));
        assert_eq!(next(&mut seen).await["value_base64"] == Value::Null, input[0] < 0x80);
        assert_eq!(outcome(&mut run(&["get", "--json", "app/mode"])).await.1, json);
    }
    // No more is read than what is refused.
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let (code, _, error) = outcome(run(&["set", "app/mode", "-"]).stdin(endless)).await;
    assert!(code == 125 && error.contains("1000001 bytes"), "{code} {error}");
    watch.kill().await.unwrap();
}

on_each_url! {
    lead_again_after_each_loss,
    values,
}
