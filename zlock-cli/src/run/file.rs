//! A lock in a file, for one machine without a server: `file:///var/lock/zlock`.
//!
//! The kernel's lock of an open file, `flock(2)`, belongs to every process that has inherited the file. So this process becomes
//! the command, and the lock is free as soon as the command has ended with all processes that it has left, whatever ended
//! them. There is no session and no keeper.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use tokio::time::Instant;
use zlock::LockPath;

use super::acquire::busy;
use super::child;
use crate::args::{Run, Store};
use crate::exit::Failure;
use crate::sys;

/// The time between two attempts to lock a file within a time limit.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the folder of a URL that names one.
pub(super) fn folder(store: &Store) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = store.url.as_deref().and_then(|url| url.strip_prefix("file://")) else {
        return Ok(None);
    };
    if path.contains(['?', '#']) {
        return Err(Failure::failed(format!("file://{path}: a URL of files has no parameters")));
    }
    if path.starts_with('/') && path.len() > 1 {
        return Ok(Some(path.into()));
    }
    Err(Failure::failed(format!("file://{path}: expected an absolute path, as in file:///var/lock/zlock")))
}

/// Locks the file and becomes the command. Only returns if that fails.
pub(super) fn run(folder: &Path, args: &Run, ignored: &[i32]) -> Failure {
    locked(folder, args).map_or_else(
        |failure| failure,
        |(path, token)| {
            let mut command = child::program(&args.command, args.shell);
            command.env("ZLOCK_TOKEN", token.to_string());
            command.env("ZLOCK_PATH", args.name.as_str()).env("ZLOCK_NODE", path);
            ignored.iter().for_each(|signal| sys::reset(*signal));
            let error = command.exec();
            child::failure(&args.command[0], &error)
        },
    )
}

/// Returns the locked file, which stays open, and the number of the holder.
fn locked(folder: &Path, args: &Run) -> Result<(PathBuf, u64), Failure> {
    let refused = [
        (args.tick.is_some(), "--tick"),
        (args.once.is_some(), "--once"),
        (args.permits.is_some(), "--permits"),
        (args.max_hold.is_some(), "--max-hold"),
        (args.candidacy.is_some(), "lead"),
        (args.membership.is_some(), "join"),
    ];
    if let Some((_, what)) = refused.iter().find(|(is_set, _)| *is_set) {
        return Err(Failure::failed(format!("{what} needs a server: use zk://, etcd:// or postgres://")));
    }
    let path = file(folder, &args.name);
    let failed = |what: &str, error: std::io::Error| Failure::failed(format!("cannot {what}: {error}"));
    fs::create_dir_all(folder).map_err(|error| failed(&format!("create {}", folder.display()), error))?;
    let shown = path.display();
    let began = Instant::now();
    let mut file = loop {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| failed(&format!("open {shown}"), error))?;
        if !lock(&file, args, began).map_err(|error| failed(&format!("lock {shown}"), error.into()))? {
            return Err(busy(args, &args.name));
        }
        // If it was deleted meanwhile, others lock another file.
        if is_at(&file, &path).map_err(|error| failed(&format!("read {shown}"), error))? {
            break file;
        }
    };
    let token = number(&mut file, !args.shared)
        .map_err(|error| failed(&format!("number the holder in {shown}"), error))?;
    // The command inherits it.
    fcntl_setfd(&file, FdFlags::empty()).map_err(|error| failed(&format!("keep {shown}"), error.into()))?;
    std::mem::forget(file);
    Ok((path, token))
}

/// Returns the file of a lock. All are in one folder, so that a lock may have the name of another one's parent.
fn file(folder: &Path, name: &LockPath) -> PathBuf {
    let name = name.as_str().trim_start_matches('/').replace('%', "%25").replace('/', "%2F");
    folder.join(format!("{name}.lock"))
}

/// Returns `true` if this is the file at that path.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let this = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((this.dev(), this.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks the file, within the time that the command line allows. Returns `false` if another process has it.
fn lock(file: &File, args: &Run, began: Instant) -> Result<bool, Errno> {
    let (blocking, attempt) = match args.shared {
        true => (FlockOperation::LockShared, FlockOperation::NonBlockingLockShared),
        false => (FlockOperation::LockExclusive, FlockOperation::NonBlockingLockExclusive),
    };
    loop {
        let wait = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
        match flock(file, if wait.is_some() { attempt } else { blocking }) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => match wait.unwrap_or_default().checked_sub(began.elapsed()) {
                Some(left) if !left.is_zero() => sleep(left.min(PAUSE)),
                _ => return Ok(false),
            },
            Err(error) => return Err(error),
        }
    }
}

/// Returns the number of the holder, which is in the file, and greater by one for each exclusive holder.
fn number(file: &mut File, is_exclusive: bool) -> std::io::Result<u64> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    // Empty before the first holder.
    let last: u64 = match text.trim_end() {
        "" => 0,
        text => text.parse().map_err(|_| std::io::Error::other("it has something else than a number"))?,
    };
    if !is_exclusive {
        return Ok(last);
    }
    file.rewind()?;
    // Never shorter than before.
    writeln!(file, "{}", last + 1)?;
    Ok(last + 1)
}
