//! A file with credentials that is missing, and then on a disk that hangs, on any store.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{Error, ErrorKind, Phase};
use zlock_recipes::InterProcessMutex;
use zlock_testkit::until;

/// Returns how often this process has the file open under this name.
fn open(file: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
    open.filter(|fd| fs::read_link(fd).is_ok_and(|name| name == file)).count()
}

/// `connect` is a connect with the password in this file that fails within a second, and `mutex` a lock of a lazy client with the
/// same options. The file does not exist yet.
pub async fn are_read_off_the_runtime_and_one_at_a_time(
    file: &Path,
    connect: impl AsyncFn() -> Error,
    mutex: InterProcessMutex,
) {
    let error = connect().await;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("password: No such file"), "{error}");
    // A lazy client waits for its files, too.
    let error = mutex.acquire_timeout(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
    assert!(error.to_string().contains("password: No such file"), "{error}");

    // A pipe without a writer behaves like a file on a disk that hangs.
    let [pipe, new] = ["pipe", "new"].map(|name| file.with_file_name(name));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::hard_link(&pipe, file).unwrap();
    for _ in 0..3 {
        let hangs = connect().await;
        assert_eq!(hangs.kind(), ErrorKind::Unavailable, "{hangs}");
        assert!(hangs.to_string().contains("cannot be read in time"), "{hangs}");
    }
    // A writer lets all readers open the pipe.
    let mut writer = OpenOptions::new().write(true).open(&pipe).unwrap();
    until("the file is open", async || open(file) > 0).await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(open(file), 1);
    fs::write(&new, "secret\n").unwrap();
    fs::rename(&new, file).unwrap();
    writer.write_all(b"old\n").unwrap();
    drop(writer);
    let guard = mutex.acquire_timeout(Duration::from_secs(30)).await.unwrap();
    guard.release().await.unwrap();
}
