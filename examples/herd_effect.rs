//! Three designs of a lock, and how many clients each wakes when the lock changes hands.
//!
//! | design | how |
//! |---|---|
//! | one name | all try to create the same node; who cannot, watches it |
//! | watch the parent | a sequential node each, the lowest holds; the others watch the whole queue |
//! | watch the predecessor | a sequential node each, the lowest holds; the others watch the one before: zlock |
//!
//! With 50 waiters the first two wake all 50 for a lock that one can get: the herd effect. Counted at the
//! server. The first two are written here, against the bare store; the third is `InterProcessMutex`.
//!
//! Run it with `--help` to see what else it can do.

use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::{Client, Guard, InterProcessMutex};

#[path = "herd_effect/mem.rs"]
mod mem;
#[cfg(feature = "zk")]
#[path = "herd_effect/zookeeper.rs"]
mod zookeeper;

const WAITERS: usize = 50;
/// Hand-overs that are counted; the table shows the middle one of each count.
const ROUNDS: usize = 9;

const POLL: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(20);

const USAGE: &str = "\
Compares three designs of a lock by what a hand-over costs with 50 waiters.

Usage: cargo run [--features zk] --example herd_effect -- [--url URL]

  --url URL   mem:// (default) or zk://host:port (needs --features zk, and a server that answers
              `mntr`: 4lw.commands.whitelist=mntr in its configuration); etcd is not measured

Exit code: 0 zlock told one waiter of each hand-over; 1 it did not; 2 it could not run.";

type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    OneName,
    WatchParent,
    WatchPredecessor,
}

/// What a server has counted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    notifications: u64,
    requests: u64,
    watches: u64,
}

/// A server, and how to make clients of it.
#[async_trait]
trait Store: Sync {
    /// A client with a session of its own.
    async fn contender(&self, design: Design) -> Result<Box<dyn Contender>>;

    async fn counts(&self) -> Result<Counts>;
}

/// A client that wants the lock.
#[async_trait]
trait Contender: Send {
    async fn acquire(&mut self) -> Result;

    async fn release(&mut self) -> Result;
}

/// zlock's own, on any backend.
struct Mutex {
    lock: InterProcessMutex,
    guard: Option<Guard>,
}

impl Mutex {
    fn new(client: &Client) -> Result<Self> {
        Ok(Mutex { lock: client.mutex("/watch-predecessor")?, guard: None })
    }
}

#[async_trait]
impl Contender for Mutex {
    async fn acquire(&mut self) -> Result {
        self.guard = Some(self.lock.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result {
        let guard = self.guard.take().ok_or("not held")?;
        guard.release().await?;
        Ok(())
    }
}

/// A contender in its own task, which acquires the lock and reports it, and releases or acquires it again on command.
async fn contend(
    number: usize,
    mut contender: Box<dyn Contender>,
    held: mpsc::Sender<usize>,
    mut told: mpsc::Receiver<()>,
) -> Result {
    loop {
        contender.acquire().await?;
        held.send(number).await?;
        let again = told.recv().await;
        contender.release().await?;
        if again.is_none() || told.recv().await.is_none() {
            return Ok(());
        }
    }
}

/// Waits until so many wait, each with its watch, and nothing moves any more.
async fn settled(store: &dyn Store, waiters: usize) -> Result<Counts> {
    let mut quiet = 0;
    let mut last = store.counts().await?;
    for _ in 0..LONGEST_WAIT.as_millis() / POLL.as_millis() {
        sleep(POLL).await;
        let now = store.counts().await?;
        quiet = if now == last && now.watches == waiters as u64 { quiet + 1 } else { 0 };
        if quiet == 3 {
            return Ok(now);
        }
        last = now;
    }
    Err(format!(
        "{waiters} watches were expected and no more requests; is anybody else using the server? {last:?}"
    )
    .into())
}

/// Notifications and requests of a hand-over, each the middle one of several.
async fn measure(store: &dyn Store, design: Design) -> Result<(u64, u64)> {
    let (held, mut holders) = mpsc::channel(1);
    let (mut tell, mut tasks) = (Vec::new(), JoinSet::new());
    for number in 0..=WAITERS {
        let (sender, told) = mpsc::channel(1);
        tell.push(sender);
        tasks.spawn(contend(number, store.contender(design).await?, held.clone(), told));
    }
    let mut notifications = Vec::new();
    let mut requests = Vec::new();
    let mut holder = next(&mut holders, &mut tasks).await?;
    for _ in 0..ROUNDS {
        let before = settled(store, WAITERS).await?;
        tell[holder].send(()).await?;
        let heir = next(&mut holders, &mut tasks).await?;
        let after = settled(store, WAITERS - 1).await?;
        notifications.push(after.notifications - before.notifications);
        requests.push(after.requests - before.requests);
        // Whoever has left queues again, not counted.
        tell[holder].send(()).await?;
        holder = heir;
    }
    drop(tell);
    while tasks.join_next().await.transpose()?.transpose()?.is_some() {
        holders.try_recv().ok();
    }
    Ok((middle(notifications), middle(requests)))
}

/// The next holder; the error of a contender that failed.
async fn next(holders: &mut mpsc::Receiver<usize>, tasks: &mut JoinSet<Result>) -> Result<usize> {
    tokio::select! {
        biased;
        Some(holder) = holders.recv() => Ok(holder),
        Some(ended) = tasks.join_next() => Err(ended?.err().unwrap_or_else(|| "a contender left".into())),
    }
}

fn middle(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    counts[counts.len() / 2]
}

/// Prints the table. Returns `true` if zlock woke one waiter for each hand-over.
async fn compare(store: &dyn Store, name: &str) -> Result<bool> {
    println!("One hand-over with {WAITERS} waiters, on {name}:\n");
    println!("| design | notifications | requests |");
    println!("|---|---|---|");
    let mut told = 0;
    for (design, name) in [
        (Design::OneName, "one name"),
        (Design::WatchParent, "watch the parent"),
        (Design::WatchPredecessor, "watch the predecessor (zlock)"),
    ] {
        let (notifications, requests) = measure(store, design).await?;
        println!("| {name} | {notifications} | {requests} |");
        told = notifications;
    }
    Ok(told == 1)
}

async fn run(url: &str) -> Result<bool> {
    if url == "mem://" {
        return compare(&mem::Mem::new()?, url).await;
    }
    #[cfg(feature = "zk")]
    if let Some(hosts) = url.strip_prefix("zk://") {
        return compare(&zookeeper::ZooKeeper::new(hosts)?, url).await;
    }
    Err(format!("{url}: expected mem://, or zk://host:port with --features zk").into())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => "mem://",
        ["--url", url] => url,
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(url).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("herd_effect: {e}");
            ExitCode::from(2)
        }
    }
}
