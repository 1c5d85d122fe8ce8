//! `zlock top` on a terminal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use zlock_testkit::{FaultProxy, etcd_or_skip, limit};

use crate::support::terminal::Terminal;
use crate::support::{PidFile, eventually, exit_code, is_dead, outcome, pid_of, send, zlock};

const EVERY: Duration = Duration::from_millis(100);

/// Starts `zlock top` on a terminal of its own.
fn top(url: &str) -> Terminal {
    let every = format!("{}ms", EVERY.as_millis());
    Terminal::start(zlock(&["top", "--every", &every, "--url", url]).env("TERM", "vt100"))
}

fn press(top: &mut Terminal, keys: &str) {
    top.clear();
    top.type_in(keys);
}

/// The colours in what a terminal was sent: parameters from 30 of the sequences that end with `m`. 39, 49 and 59 are
/// the terminal's own.
fn colours(screen: &str) -> Vec<&str> {
    let sequences = screen.split("\x1b[").skip(1);
    let styles = sequences.filter_map(|sequence| {
        let (parameters, _) = sequence.split_once(|c: char| !c.is_ascii_digit() && c != ';')?;
        sequence[parameters.len()..].starts_with('m').then_some(parameters)
    });
    styles
        .flat_map(|style| style.split(';'))
        .filter(|style| style.parse::<u8>().is_ok_and(|n| n >= 30 && n % 10 != 9))
        .collect()
}

#[tokio::test]
async fn locks_are_seen_and_a_holder_is_asked_to_release() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/top", server.addr());
        let files = [PidFile::new(), PidFile::new()];
        let run = |name: &str, file: &PidFile| {
            let args = ["run", "--url", &url, "--shell", name, "--"];
            let script = format!("echo $$ > {file}; exec sleep 1000");
            zlock(&args).arg(script).stderr(Stdio::null()).spawn().unwrap()
        };
        let holder = run("jobs/backup", &files[0]);
        let command = files[0].number().await;
        let mut other = run("jobs/other", &files[1]);
        files[1].number().await;

        let (code, table, _) = outcome(&mut zlock(&["top", "--once", "--url", &url])).await;
        assert_eq!(code, 0);
        let words: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((&words[..3], words[4]), (&["1", "0", "-"][..], "/jobs/backup"), "{table}");

        let mut top = top(&url);
        top.shows("/jobs/backup").await;
        let screen = top.screen();
        assert_eq!(colours(&screen), [""; 0], "{screen:?}");
        press(&mut top, "\r");
        top.shows("exclusive").await;
        press(&mut top, "\x1b");
        top.shows("filter").await;
        // Asked first: another key sends nothing.
        press(&mut top, "r");
        top.shows("/jobs/backup").await;
        press(&mut top, "n");
        top.shows("Enter").await;
        assert!(support::is_alive(command));
        // The lock whose queue is shown, whatever the keys for the list were.
        press(&mut top, "\r");
        top.shows("exclusive").await;
        press(&mut top, "jr");
        top.shows("/jobs/backup").await;
        press(&mut top, "y");
        is_dead(command).await;
        assert!(other.try_wait().unwrap().is_none());
        assert_eq!(exit_code(holder).await, 128 + 15);
        send(pid_of(&top.process), Signal::TERM);
        eventually("the end", || top.process.try_wait().unwrap()).await;
        // The terminal has its own screen back.
        top.shows("\x1b[?1049l").await;
        send(pid_of(&other), Signal::TERM);
        assert_eq!(exit_code(other).await, 128 + 15);
    })
    .await;
}

/// The store is silent for longer than a test may last.
#[tokio::test]
async fn a_silent_store_keeps_nobody_here() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let proxy = FaultProxy::start(server.addr()).await;
        let url = format!("etcd://{}/silent?session_timeout=10m&operation_timeout=10m", proxy.addr());
        for end in ["q", "\x03", ""] {
            let mut top = top(&url);
            top.shows("QUEUED").await;
            proxy.freeze().await;
            // A look is under way for longer than the time between two.
            let before = proxy.bytes_to_client();
            tokio::time::sleep(3 * EVERY).await;
            assert_eq!(proxy.bytes_to_client(), before);
            match end {
                "" => send(pid_of(&top.process), Signal::INT),
                key => press(&mut top, key),
            }
            eventually("the end", || top.process.try_wait().unwrap()).await;
            top.shows("\x1b[?1049l").await;
            proxy.heal().await;
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_do() {
    limit(async {
        let (code, _, error) = outcome(&mut zlock(&["top", "--url", "mem://x"])).await;
        assert_eq!(code, 125);
        assert!(error.contains("top --once"), "{error}");
    })
    .await;
}
