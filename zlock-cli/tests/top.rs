//! `zlock top` on a terminal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::Child;
use zlock_testkit::{FaultProxy, etcd_or_skip, limit};

use crate::support::{eventually, exit_code, folder, is_dead, number_in, outcome, pid_of, send, zlock};

const EVERY: Duration = Duration::from_millis(100);

/// `zlock top` on a terminal of its own, with 80 columns.
struct Top {
    keys: File,
    screen: Arc<Mutex<String>>,
    process: Child,
}

impl Top {
    fn start(url: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = || {
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
            Stdio::from(rustix::fs::open(&*name, flags, rustix::fs::Mode::empty()).unwrap())
        };
        let every = format!("{}ms", EVERY.as_millis());
        let mut top = zlock(&["top", "--every", &every, "--url", url]);
        top.env("TERM", "vt100");
        let process = top.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let keys = File::from(master);
        let (mut output, screen) = (keys.try_clone().unwrap(), Arc::<Mutex<String>>::default());
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Top { keys, screen, process }
    }

    fn press(&mut self, keys: &str) {
        self.screen.lock().unwrap().clear();
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a word, which the terminal gets in one piece since it has no blanks.
    async fn shows(&self, word: &str) {
        eventually(word, || self.screen.lock().unwrap().contains(word).then_some(())).await;
    }
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

/// Prints the screen of a failed test.
impl Drop for Top {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- screen\n{:?}\n---", self.screen.lock().unwrap());
        }
    }
}

#[tokio::test]
async fn locks_are_seen_and_a_holder_is_asked_to_release() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/top", server.addr());
        let folder = folder();
        let file = folder.path().join("pid");
        let run = |name: &str, script: String| {
            let args = ["run", "--url", &url, "--shell", name, "--"];
            zlock(&args).arg(script).stderr(Stdio::null()).spawn().unwrap()
        };
        let holder = run("jobs/backup", format!("echo $$ > {}; exec sleep 1000", file.display()));
        let command = number_in(&file).await;
        let other_file = folder.path().join("other");
        let mut other = run("jobs/other", format!("echo $$ > {}; exec sleep 1000", other_file.display()));
        number_in(&other_file).await;

        let (code, table, _) = outcome(&mut zlock(&["top", "--once", "--url", &url])).await;
        assert_eq!(code, 0);
        let words: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..4], ["1", "0", "-", "/jobs/backup"], "{table}");

        let mut top = Top::start(&url);
        top.shows("/jobs/backup").await;
        let screen = top.screen.lock().unwrap().clone();
        assert_eq!(colours(&screen), [""; 0], "{screen:?}");
        top.press("\r");
        top.shows("exclusive").await;
        top.press("\x1b");
        top.shows("LONGEST").await;
        // Asked first: another key sends nothing.
        top.press("r");
        top.shows("/jobs/backup").await;
        top.press("n");
        top.shows("Enter").await;
        assert!(support::is_alive(command));
        // The lock whose queue is shown, whatever the keys for the list were.
        top.press("\r");
        top.shows("exclusive").await;
        top.press("jr");
        top.shows("/jobs/backup").await;
        top.press("y");
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
            let mut top = Top::start(&url);
            top.shows("LONGEST").await;
            proxy.freeze().await;
            // A look is under way for longer than the time between two.
            let before = proxy.bytes_to_client();
            tokio::time::sleep(3 * EVERY).await;
            assert_eq!(proxy.bytes_to_client(), before);
            match end {
                "" => send(pid_of(&top.process), Signal::INT),
                key => top.press(key),
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
