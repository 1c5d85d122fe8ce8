//! Ten threads draw order numbers, first without a lock, then with one. The blocking version of `order_numbers`, for programs
//! without an async runtime.
//!
//! To draw a number, a worker reads the last one from a file, works for a moment, and appends the next one. These steps are not
//! atomic: without a lock, workers that draw at the same time draw the same number.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io, process, thread};

use zlock::blocking::{self, LockTemplate};

const WORKERS: u32 = 10;

const USAGE: &str = "\
Usage: cargo run [--features zk|etcd] --example order_numbers_blocking -- [--url URL]

  --url URL   the store: mem:// (default), or zk://host:port (needs --features zk),
              or etcd://host:port (needs --features etcd)";

type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn numbers(file: &Path) -> Result<Vec<u32>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    Ok(text.lines().map(str::parse).collect::<Result<_, _>>()?)
}

/// Draws a number: reads the last one, works for a moment, writes the next one. `check` fails once the worker no longer holds
/// the lock.
fn draw(file: &Path, check: impl Fn() -> zlock::Result<()>) -> Result {
    let next = numbers(file)?.last().map_or(1, |last| last + 1);
    thread::sleep(Duration::from_millis(20));
    check()?;
    let mut file = fs::OpenOptions::new().create(true).append(true).open(file)?;
    io::Write::write_all(&mut file, format!("{next}\n").as_bytes())?;
    Ok(())
}

fn draw_with_lock(file: &Path, template: &LockTemplate) -> Result {
    // A database could compare the lock's `fencing_token()`; a file cannot.
    template.execute_fallible("create-order", |lock| draw(file, || lock.check()))
}

/// Lets ten threads draw one number each.
fn ten_threads(draw: impl Fn() -> Result + Sync) -> Result {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(&draw)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })
}

/// Prints the numbers and returns the number of duplicates.
fn show(title: &str, file: &Path) -> Result<usize> {
    let numbers = numbers(file)?;
    let duplicates = numbers.len() - numbers.iter().collect::<BTreeSet<_>>().len();
    println!("{title}: {numbers:?}\n  = {} orders, {duplicates} duplicates", numbers.len());
    Ok(duplicates)
}

fn demonstrate(url: &str, folder: &Path) -> Result<bool> {
    let (unlocked, locked) = (folder.join("unlocked"), folder.join("locked"));
    ten_threads(|| draw(&unlocked, || Ok(())))?;
    show("Without the lock", &unlocked)?;

    let client = blocking::connect(url)?;
    let template = client.lock_template("/order-numbers")?.with_wait(Duration::from_secs(60), 1)?;
    ten_threads(|| draw_with_lock(&locked, &template))?;
    client.close()?;
    Ok(show("With the lock", &locked)? == 0)
}

fn run(url: &str) -> Result<bool> {
    let folder = env::temp_dir().join(format!("zlock-order-numbers-blocking-{}", process::id()));
    fs::create_dir(&folder)?;
    let is_right = demonstrate(url, &folder);
    fs::remove_dir_all(&folder)?;
    is_right
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
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
    match run(url) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("WRONG");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("order_numbers_blocking: {error}");
            ExitCode::from(2)
        }
    }
}
