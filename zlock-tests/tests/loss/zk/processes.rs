//! Processes that share a file and a lock on a real ZooKeeper. Some of them are killed or paused while they hold it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock::{FencingToken, Release};
use zlock_testkit::zk::{Observer, mutex};
use zlock_testkit::{Process, limit, limit_to, report, zookeeper_or_skip};

/// The session timeouts of processes whose sessions should end soon, and of the others.
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(20);

/// How often each process acquires the lock.
const ROUNDS: u32 = 20;

fn child(test: &str, hosts: &str, folder: &Path, fate: Fate) -> Process {
    let variables = [
        ("ZLOCK_CHILD_HOSTS", hosts),
        ("ZLOCK_CHILD_FOLDER", folder.to_str().unwrap()),
        ("ZLOCK_CHILD_FATE", &format!("{fate:?}")),
    ];
    Process::spawn_test(&format!("{}::{test}", module_path!()), &variables)
}

/// The arguments of a child: the servers, and the shared folder.
fn arguments() -> (String, PathBuf) {
    let variable = |name| std::env::var(name).unwrap();
    (variable("ZLOCK_CHILD_HOSTS"), variable("ZLOCK_CHILD_FOLDER").into())
}

/// The fault of a process when it holds the lock for the third time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Nothing,
    Killed,
    /// For twice its session.
    Paused,
}

/// Runs in a separate process: raises a flag that only one process may raise, and counts without atomicity.
#[tokio::test]
#[ignore = "run by other tests in a process of its own"]
async fn child_flags() {
    let (hosts, folder) = arguments();
    let mutex = mutex(hosts, LONG, "/processes/flag").await;
    let (flag, counter) = (folder.join("flag"), folder.join("counter"));
    for _ in 0..ROUNDS {
        let guard = mutex.acquire().await.unwrap();
        File::create_new(&flag).expect("nobody else is in");
        let count: u32 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        std::fs::write(&counter, (count + 1).to_string()).unwrap();
        std::fs::remove_file(&flag).unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// MX-06 with ten processes.
#[tokio::test]
async fn ten_processes_are_in_one_after_the_other() {
    const PROCESSES: u32 = 10;
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("counter");
        std::fs::write(&counter, "0").unwrap();
        let mut children = JoinSet::new();
        for _ in 0..PROCESSES {
            let child = child("child_flags", &server.connect_string(), folder.path(), Fate::Nothing);
            children.spawn(child.wait());
        }
        while let Some(code) = children.join_next().await {
            assert_eq!(code.unwrap(), 0);
        }
        assert_eq!(std::fs::read_to_string(counter).unwrap(), (PROCESSES * ROUNDS).to_string());
        let observer = Observer::connect(server.connect_string()).await;
        assert!(observer.children("/processes/flag").await.is_empty());
    })
    .await;
}

/// A storage that rejects tokens below the highest one that it has seen. Its operations are atomic.
struct Storage(PathBuf);

impl Storage {
    /// Begins with nothing counted.
    fn make(folder: &Path) -> Self {
        let storage = Storage(folder.join("storage"));
        std::fs::write(&storage.0, "0 0").unwrap();
        storage
    }

    /// The count, and a new one if there is one; `None` if the token is too old.
    fn visit(&self, token: FencingToken, count: Option<u64>) -> Option<u64> {
        let mut file = File::options().read(true).write(true).open(&self.0).unwrap();
        #[allow(clippy::incompatible_msrv, reason = "Rust 1.89; no part of the library")]
        file.lock().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let (highest, before) = text.split_once(' ').unwrap();
        let (highest, before): (u64, u64) = (highest.parse().unwrap(), before.parse().unwrap());
        if token.number() < highest {
            return None;
        }
        let count = count.unwrap_or(before);
        file.rewind().unwrap();
        // The numbers only grow, so the new text overwrites the old one completely.
        write!(file, "{} {count}", token.number()).unwrap();
        Some(count)
    }
}

/// Runs in a separate process: counts in the storage, without checking whether it still holds the lock.
#[tokio::test]
#[ignore = "run by other tests in a process of its own"]
async fn child_counts() {
    let (hosts, folder) = arguments();
    let fate = std::env::var("ZLOCK_CHILD_FATE").unwrap();
    let session = if fate == "Nothing" { LONG } else { SHORT };
    let mutex = mutex(hosts, session, "/processes/storage").await;
    let storage = Storage(folder.join("storage"));
    println!("\nready");
    while !folder.join("go").exists() {
        sleep(Duration::from_millis(5)).await;
    }
    for round in 1..=ROUNDS {
        let guard = mutex.acquire().await.unwrap();
        let token = guard.fencing_token();
        let Some(count) = storage.visit(token, None) else { panic!("{token} was just granted") };
        let before = Instant::now();
        println!("\nin");
        match fate.as_str() {
            "Killed" if round == 3 => std::future::pending().await,
            "Paused" if round == 3 => pause(before).await,
            _ => sleep(Duration::from_millis(5)).await,
        }
        match storage.visit(token, Some(count + 1)) {
            Some(_) => println!("\ncounted"),
            None => println!("\nrefused held={}", guard.is_held()),
        }
        let _ = guard.release().await.unwrap();
    }
}

/// Waits until this process has been paused for longer than its session timeout, since `before` or later.
async fn pause(mut before: Instant) {
    loop {
        let now = Instant::now();
        if now - before > SHORT {
            return;
        }
        before = now;
        sleep(Duration::from_millis(1)).await;
    }
}

/// Follows a process until it ends. Returns its fate, the number of accepted counts, and the rejections.
async fn follow(mut child: Process, fate: Fate) -> (Fate, u64, Vec<String>) {
    let (mut ins, mut counted, mut refused) = (0, 0, Vec::new());
    while let Some(line) = child.line().await {
        if line == "counted" {
            counted += 1;
        } else if let Some(how) = line.strip_prefix("refused ") {
            refused.push(how.to_owned());
        } else if line == "in" {
            ins += 1;
            match fate {
                Fate::Killed if ins == 3 => child.kill(),
                Fate::Paused if ins == 3 => {
                    child.pause();
                    sleep(2 * SHORT).await;
                    child.resume();
                }
                _ => {}
            }
        }
    }
    assert_eq!(child.wait().await, if fate == Fate::Killed { 128 + 9 } else { 0 }, "{fate:?}");
    (fate, counted, refused)
}

/// No count is duplicated or lost. A process that was paused while it held the lock resumes with an outdated token, and knows
/// that it no longer holds the lock.
#[tokio::test]
async fn killed_and_paused_processes_spoil_nothing() {
    limit_to(Duration::from_secs(90), async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::make(folder.path());
        let mut children = JoinSet::new();
        for fate in [Fate::Paused, Fate::Killed, Fate::Nothing, Fate::Nothing, Fate::Killed, Fate::Paused] {
            let mut child = child("child_counts", &server.connect_string(), folder.path(), fate);
            child.line_after("ready").await;
            children.spawn(follow(child, fate));
        }
        // All at once, so that another process always overtakes the paused one.
        File::create_new(folder.path().join("go")).unwrap();
        let mut counted = 0;
        while let Some(child) = children.join_next().await {
            let (fate, count, refused) = child.unwrap();
            report(format!("{fate:?}: counted {count}, refused {refused:?}"));
            match fate {
                Fate::Nothing => assert!(count == 20 && refused.is_empty()),
                Fate::Killed => assert!(count == 2 && refused.is_empty()),
                Fate::Paused => assert_eq!((count, refused), (19, vec!["held=false".to_owned()])),
            }
            counted += count;
        }
        let text = std::fs::read_to_string(&storage.0).unwrap();
        assert_eq!(text.split_once(' ').unwrap().1, counted.to_string());
    })
    .await;
}
