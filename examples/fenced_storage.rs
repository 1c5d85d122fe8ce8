//! A holder is paused for three sessions and then writes, as if nothing had happened: its storage refuses it.
//!
//! No lock service can keep a process from writing late: it may be paused between its last look at the lock and
//! the write. So the storage looks at the lock's fencing token, which grows with every holder, and refuses a
//! token below the highest that it has seen.
//!
//! On mem:// the first holder is a thread that is blocked; on a server (`--url`) it is a process that is stopped
//! (SIGSTOP) while it holds the lock, and continued when another has written.
//!
//! Then two tasks of one client hand a lock to each other. Their tokens have the same number and differ in the turn, so
//! the storage refuses what the earlier of them writes after its release, too.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, io, process, thread};

use tokio::time::{Instant, sleep, timeout};
use zlock::{Client, FencingToken, Handoff};

#[path = "common/mod.rs"]
mod common;
use common::Result;

const LOCK: &str = "/fenced_storage/lock";

/// Short, so that nobody waits long.
const SESSION: Duration = Duration::from_secs(2);

/// A file with the highest token that was seen, and a text. As atomic as a database is.
struct Storage(PathBuf);

/// The storage has seen a newer token.
struct Refused(FencingToken);

impl Storage {
    fn make(path: PathBuf) -> io::Result<Self> {
        fs::write(&path, "0 nothing")?;
        Ok(Storage(path))
    }

    /// Reads, or writes a text. A read counts, too: a client that has read with a newer token must find what it read
    /// when it comes to write.
    fn visit(&self, token: FencingToken, text: Option<&str>) -> io::Result<Result<String, Refused>> {
        let mut file = File::options().read(true).write(true).open(&self.0)?;
        #[allow(clippy::incompatible_msrv, reason = "Rust 1.89; no part of the library")]
        file.lock()?;
        let mut before = String::new();
        file.read_to_string(&mut before)?;
        let (highest, present) = before.split_once(' ').unwrap_or(("0", ""));
        let highest: u128 = highest.parse().map_err(io::Error::other)?;
        let highest = FencingToken::try_from(highest).map_err(io::Error::other)?;
        if token < highest {
            return Ok(Err(Refused(highest)));
        }
        let text = text.unwrap_or(present);
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{} {text}", u128::from(token))?;
        Ok(Ok(text.to_owned()))
    }
}

/// The first holder: reads, is paused, and writes. Whether it knows that it has lost the lock, and was refused.
async fn first(client: Client, storage: Storage, pause: impl AsyncFnOnce() -> Result) -> Result<bool> {
    let guard = client.mutex(LOCK)?.acquire().await?;
    let token = guard.fencing_token();
    let Ok(read) = storage.visit(token, None)? else { return Err("a new token was refused".into()) };
    println!("  first: holds the lock with token {token}, reads {read:?}");
    pause().await?;
    // The first thing it does: what it knows, it knows without asking anybody.
    let held = guard.is_held();
    println!("  first: goes on; is_held() says {held}");
    let told = match timeout(Duration::ZERO, guard.lost()).await {
        Ok(error) => {
            println!("  first: lost() says \"{error}\"");
            true
        }
        Err(_) => false,
    };
    let refused = match storage.visit(token, Some("what the first holder wrote"))? {
        Ok(_) => {
            println!("  first: has written with token {token}");
            false
        }
        Err(Refused(newer)) => {
            println!("  first: writes all the same, and is refused: token {token} is older than {newer}");
            true
        }
    };
    Ok(!held && told && refused)
}

/// The second holder: waits for the lock, writes, and takes its time.
async fn second(client: &Client, storage: &Storage) -> Result<Duration> {
    let began = Instant::now();
    let guard = client.mutex(LOCK)?.acquire().await?;
    let (token, waited) = (guard.fencing_token(), began.elapsed());
    let Ok(text) = storage.visit(token, Some("what the second holder wrote"))? else {
        return Err("a new token was refused".into());
    };
    println!("  second: holds the lock with token {token} after {waited:.1?}, writes {text:?}");
    // The first one's session is over. Two more.
    sleep(2 * waited).await;
    guard.release().await?;
    Ok(began.elapsed())
}

/// Two holders of one place: the first writes after it has released the lock.
async fn in_one_batch(client: &Client, storage: &Storage) -> Result<bool> {
    let lock = client.mutex(LOCK)?.with_handoff(Handoff::within(SESSION));
    let first = lock.acquire().await?;
    let token = first.fencing_token();
    println!("  third: holds the lock with token {token}");
    // The first poll of an acquisition joins the queue of the client's waiters, and a release then hands the lock over.
    let (next, released) = tokio::join!(biased; lock.acquire(), first.release());
    released?;
    let next = next?;
    let newer = next.fencing_token();
    let Ok(_) = storage.visit(newer, Some("what the fourth holder wrote"))? else {
        return Err("a new token was refused".into());
    };
    println!("  fourth: was handed the lock with token {newer}, and writes");
    let refused = storage.visit(token, Some("what the third holder wrote"))?.is_err();
    if refused {
        println!("  third: writes all the same, and is refused: token {token} is older than {newer}");
    }
    next.release().await?;
    Ok(refused && token.number() == newer.number() && token < newer)
}

/// On mem: the first holder is a thread with a runtime of its own, which its code blocks.
async fn in_a_thread(storage: Storage) -> Result<bool> {
    use zlock::mem::{MemOptions, MemServer};

    let server = MemServer::new();
    let connect =
        move || Client::new(server.connect_with(MemOptions::default().with_session_timeout(SESSION / 4)));
    // The server's clock is that of its first client's runtime.
    let client = connect();
    let (paused, pause) = tokio::sync::oneshot::channel();
    let (wake, woken) = mpsc::channel::<()>();
    let file = Storage(storage.0.clone());
    let holder = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let block = async || {
                let _ = paused.send(());
                Ok(woken.recv()?)
            };
            first(connect(), file, block).await
        })
    });
    pause.await?;
    println!("  first: is blocked");
    let took = second(&client, &storage).await?;
    println!("  first: is woken after {took:.1?}");
    wake.send(())?;
    holder.join().map_err(|_| "the first holder panicked")?
}

/// On a server: the first holder is a process.
async fn in_a_process(url: &str, storage: Storage) -> Result<bool> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--first", url]).arg(&storage.0).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn()?;
    let lines = io::BufReader::new(holder.stdout.take().ok_or("no output")?);
    let (paused, pause) = tokio::sync::oneshot::channel();
    let printer = thread::spawn(move || {
        let mut paused = Some(paused);
        for line in io::BufRead::lines(lines).map_while(io::Result::ok) {
            if line == PAUSE {
                paused.take().map(|paused| paused.send(()));
            } else {
                println!("{line}");
            }
        }
    });
    let client = zlock::connect(url).await?;
    pause.await?;
    signal("STOP", holder.id())?;
    println!("  first: process {} is stopped", holder.id());
    let took = second(&client, &storage).await;
    signal("CONT", holder.id())?;
    println!("  first: process {} is continued after {:.1?}", holder.id(), took?);
    drop(holder.stdin.take());
    let good = holder.wait()?.success();
    printer.join().map_err(|_| "no output")?;
    client.close().await?;
    Ok(good)
}

/// What the process says when it may be stopped.
const PAUSE: &str = "now";

fn signal(name: &str, pid: u32) -> Result {
    // A part of every shell; the program of this name is not everywhere.
    let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).status()?;
    if sent.success() { Ok(()) } else { Err(format!("no SIG{name} for {pid}").into()) }
}

/// The process that is stopped: goes on when its standard input ends.
async fn first_process(url: &str, file: &Path) -> Result<bool> {
    let wait = async || {
        println!("{PAUSE}");
        let wait = || io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(wait).await??;
        Ok(())
    };
    first(zlock::connect(url).await?, Storage(file.to_owned()), wait).await
}

/// With a session that nobody waits long for, unless the URL has one.
fn with_short_session(url: &str) -> String {
    if ["session_timeout=", "ttl="].iter().any(|name| url.contains(name)) {
        return url.to_owned();
    }
    format!("{url}{}session_timeout={}s", if url.contains('?') { '&' } else { '?' }, SESSION.as_secs())
}

async fn example(url: &str) -> Result<bool> {
    let file = env::temp_dir().join(format!("zlock-fenced-storage-{}", process::id()));
    let storage = Storage::make(file.clone())?;
    println!("A holder is paused, on {url}:");
    let good = match url {
        "mem://" => in_a_thread(storage).await,
        url => in_a_process(&with_short_session(url), storage).await,
    };
    let text = fs::read_to_string(&file)?;
    fs::remove_file(&file)?;
    println!("  = the storage has {:?}", text.split_once(' ').map_or("", |(_, text)| text));
    println!("A lock is handed over inside a client:");
    let client = zlock::connect(url).await?;
    let refused = in_one_batch(&client, &Storage::make(file.clone())?).await?;
    client.close().await?;
    fs::remove_file(&file)?;
    Ok(good? && refused && text.ends_with("second holder wrote"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [first, url, file] = &args[..]
        && first == "--first"
    {
        return match first_process(url, Path::new(file)).await {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(e) => {
                eprintln!("fenced_storage: {e}");
                ExitCode::from(2)
            }
        };
    }
    common::main("fenced_storage", "mem://", example).await
}
