//! Ten workers draw order numbers: first without a lock, then with one.
//!
//! An order number is the time and a running number, `19:42:13|592-0007`. To draw one, a worker reads the
//! last running number, works for a moment, and writes the next. Nothing makes the two one step, so workers
//! that draw at the same time draw the same number, unless a lock keeps them apart.
//!
//! Run it with `--help` to see what else it can do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process};

use tokio::task::JoinSet;

#[path = "order_numbers/options.rs"]
mod options;
use options::{Options, USAGE};

const WORKERS: u32 = 10;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The orders of one run: a file with a line each, beginning with the order number.
#[derive(Clone)]
struct Orders {
    file: PathBuf,
    hold: Duration,
}

impl Orders {
    /// Draws a number: reads the last one, works for a moment, writes the next one.
    async fn draw(&self, worker: u32) -> Result<()> {
        let next = self.lines()?.last().map_or(Ok(0), |line| running_number(line))? + 1;
        let time = time_of_day();
        tokio::time::sleep(self.hold).await;
        let line = format!("{time}-{next:04}  process {} worker {worker}\n", process::id());
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.file)?;
        io::Write::write_all(&mut file, line.as_bytes())?;
        Ok(())
    }

    fn lines(&self) -> io::Result<Vec<String>> {
        match fs::read_to_string(&self.file) {
            Ok(text) => Ok(text.lines().map(String::from).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}

/// Ten workers at once, each in a task of its own, draw a number each without a lock.
async fn draw_without_lock(orders: &Orders) -> Result<()> {
    let mut workers = JoinSet::new();
    for worker in 1..=WORKERS {
        let orders = orders.clone();
        workers.spawn(async move { orders.draw(worker).await });
    }
    all_done(workers).await
}

/// The same, each under the lock `create-order`.
async fn draw_with_lock(orders: &Orders, url: &str, longest_wait: Duration) -> Result<()> {
    let client = zlock::connect(url).await?;
    let template = client.lock_template("/order-numbers")?.with_wait(longest_wait, 1)?;
    let mut workers = JoinSet::new();
    for worker in 1..=WORKERS {
        let (template, orders) = (template.clone(), orders.clone());
        workers.spawn(async move {
            // A database would be given the lock's `fencing_token()` with the order; a file cannot compare.
            let drawn = template.execute("create-order", |_lock| async {
                if orders.hold >= Duration::from_millis(100) {
                    println!("  process {} holds the lock (worker {worker})", process::id());
                }
                orders.draw(worker).await
            });
            drawn.await?
        });
    }
    all_done(workers).await?;
    client.close().await?;
    Ok(())
}

async fn all_done(mut workers: JoinSet<Result<()>>) -> Result<()> {
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

/// `HH:MM:SS|mmm`, in UTC.
fn time_of_day() -> String {
    #[allow(clippy::disallowed_methods, reason = "the time is what is shown; nothing is decided by it")]
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (since_1970.as_secs(), since_1970.subsec_millis());
    format!("{:02}:{:02}:{:02}|{ms:03}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// The running number of an order's line.
fn running_number(line: &str) -> Result<u64> {
    let number = line.split_once('-').and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    number.ok_or_else(|| format!("no order number: {line:?}").into())
}

/// What a run's numbers are like, in the order in which they were written.
#[derive(Debug, PartialEq)]
struct Findings {
    orders: usize,
    duplicates: usize,
    in_order: bool,
}

impl Findings {
    /// Two orders with the same running number are duplicates, whatever their time.
    fn of(lines: &[String]) -> Result<Self> {
        let numbers = lines.iter().map(|line| running_number(line)).collect::<Result<Vec<_>>>()?;
        let distinct: BTreeSet<_> = numbers.iter().collect();
        Ok(Findings {
            orders: numbers.len(),
            duplicates: numbers.len() - distinct.len(),
            in_order: numbers.is_sorted(),
        })
    }

    fn is_good(&self) -> bool {
        self.duplicates == 0 && self.in_order
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Run {
    WithoutLock,
    WithLock,
}

fn run_here(run: Run, orders: &Orders, options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match run {
        Run::WithoutLock => runtime.block_on(draw_without_lock(orders)),
        Run::WithLock => runtime.block_on(draw_with_lock(orders, &options.url, options.longest_wait())),
    }
}

/// Runs this program `processes` times, and waits. A process that was killed is told of and is no failure:
/// what counts is what the others made of it.
fn run_in_processes(run: Run, orders: &Orders, options: &Options) -> Result<()> {
    let child = || {
        let mut command = Command::new(env::current_exe()?);
        command.arg("--child").arg(if run == Run::WithLock { "locked" } else { "unlocked" });
        command.arg(&orders.file).args(options.to_args()).spawn()
    };
    let children = (0..options.processes).map(|_| child()).collect::<io::Result<Vec<_>>>()?;
    let mut failed = 0;
    for mut child in children {
        let (pid, status) = (child.id(), child.wait()?);
        match status.code() {
            Some(0) => {}
            Some(_) => failed += 1,
            None => println!("  process {pid} was killed ({status}); the others went on"),
        }
    }
    if failed > 0 { Err(format!("{failed} processes failed").into()) } else { Ok(()) }
}

/// Runs, and prints what was drawn.
fn show(run: Run, title: &str, directory: &Path, options: &Options) -> Result<Findings> {
    println!("{title}:");
    let orders = Orders { file: directory.join(format!("{run:?}")), hold: options.hold };
    if options.processes == 0 {
        run_here(run, &orders, options)?;
    } else {
        run_in_processes(run, &orders, options)?;
    }
    let lines = orders.lines()?;
    for line in &lines {
        println!("  {line}");
    }
    let findings = Findings::of(&lines)?;
    let order = if findings.in_order { "in order" } else { "out of order" };
    println!("  = {} orders, {} duplicates, {order}\n", findings.orders, findings.duplicates);
    Ok(findings)
}

/// Both runs. Whether the lock did what it should.
fn demonstrate(directory: &Path, options: &Options) -> Result<bool> {
    show(Run::WithoutLock, "Without the lock", directory, options)?;
    let title = format!("With the lock, on {}", options.url);
    let locked = show(Run::WithLock, &title, directory, options)?;
    if locked.orders == 0 {
        return Err("no order was written with the lock".into());
    }
    println!(
        "With the lock the numbers are {}.",
        if locked.is_good() { "unique and in order" } else { "WRONG" }
    );
    Ok(locked.is_good())
}

fn run(options: &Options) -> Result<bool> {
    if let Some((run, file)) = &options.child {
        run_here(*run, &Orders { file: file.clone(), hold: options.hold }, options)?;
        return Ok(true);
    }
    let directory = env::temp_dir().join(format!("zlock-order-numbers-{}", process::id()));
    fs::create_dir(&directory)?;
    let good = demonstrate(&directory, options);
    fs::remove_dir_all(&directory)?;
    good
}

fn main() -> ExitCode {
    let result = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => Err(format!("{why}; see --help").into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("order_numbers: {e}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(numbers: &[u32]) -> Findings {
        let lines: Vec<_> = numbers.iter().map(|n| format!("19:42:13|592-{n:04}  process 1")).collect();
        Findings::of(&lines).unwrap()
    }

    #[test]
    fn duplicates_and_disorder_are_found() {
        assert_eq!(find(&[1, 2, 3]), Findings { orders: 3, duplicates: 0, in_order: true });
        assert_eq!(find(&[1, 1, 2, 1]), Findings { orders: 4, duplicates: 2, in_order: false });
        assert!(find(&[1, 3]).is_good() && !find(&[2, 2]).is_good() && !find(&[2, 1]).is_good());
    }

    #[test]
    fn only_the_lock_keeps_numbers_unique() {
        let options = Options::parse([]).unwrap().unwrap();
        let directory = env::temp_dir().join(format!("zlock-order-numbers-test-{}", process::id()));
        fs::create_dir(&directory).unwrap();
        let unlocked = show(Run::WithoutLock, "without", &directory, &options).unwrap();
        let locked = show(Run::WithLock, "with", &directory, &options).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(unlocked, Findings { orders: 10, duplicates: 9, in_order: true });
        assert_eq!(locked, Findings { orders: 10, duplicates: 0, in_order: true });
    }
}
