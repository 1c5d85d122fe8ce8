//! Reads files that may be on a hanging disk.

use std::sync::Arc;
use std::thread;

use tokio::sync::{Mutex, oneshot};

/// Reads the files of a configuration outside the runtime, one read at a time. Clones share this limit.
///
/// A hanging read cannot be cancelled. So it runs on a separate thread, which neither blocks the runtime's tasks nor keeps the
/// runtime from shutting down. Later reads wait for it, so that only one thread hangs, however often a client tries to connect.
#[derive(Clone, Debug, Default)]
pub struct Files(Arc<Mutex<()>>);

impl Files {
    /// Runs `read` on a new thread, once the read in progress has ended.
    ///
    /// # Errors
    /// Those of `read`, and an error if the operating system cannot start the thread or if `read` panics.
    ///
    /// # Cancel safety
    /// A read that has begun continues on its thread. Its result is dropped.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let turn = self.0.clone().lock_owned().await;
        let (sender, output) = oneshot::channel();
        let run = move || {
            let output = read();
            drop(turn);
            // Fails if the caller no longer waits.
            drop(sender.send(output));
        };
        let started = thread::Builder::new().name("zlock-files".into()).spawn(run);
        started.map_err(|error| format!("cannot start a thread to read files: {error}"))?;
        output.await.unwrap_or_else(|_| Err("reading the files panicked".into()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::TextOrFile;

    const LONG: Duration = Duration::from_secs(30);

    /// A pipe without a writer is a file that hangs.
    #[tokio::test]
    async fn one_read_hangs_and_others_wait_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (files, secret) = (Files::default(), TextOrFile::from(&*pipe));
        let begun = Arc::new(AtomicUsize::new(0));
        let read = || {
            let (files, secret, begun) = (files.clone(), secret.clone(), begun.clone());
            let read = move || {
                begun.fetch_add(1, SeqCst);
                secret.read_secret()
            };
            async move { files.read(read).await }
        };
        for _ in 0..3 {
            assert!(timeout(Duration::from_millis(50), read()).await.is_err());
        }
        assert_eq!(begun.load(SeqCst), 1);
        let waiting = tokio::spawn(read());
        // The hanging read gets the old text, and the waiting one reads the new file.
        let old = folder.path().join("old");
        fs::rename(&pipe, &old).unwrap();
        fs::write(&pipe, "new").unwrap();
        fs::write(&old, "old").unwrap();
        let text = timeout(LONG, waiting).await.expect("its turn comes").unwrap();
        assert_eq!(text.as_deref(), Ok("new"));
        errors_are_those_of_the_read(&files).await;
    }

    async fn errors_are_those_of_the_read(files: &Files) {
        assert_eq!(files.read(|| Err::<(), _>("why".into())).await, Err("why".into()));
        let panicked = files.read(|| -> Result<(), String> { panic!("in a read") }).await;
        assert_eq!(panicked, Err("reading the files panicked".into()));
        assert_eq!(files.read(|| Ok(1)).await, Ok(1), "the turn came back");
    }
}
