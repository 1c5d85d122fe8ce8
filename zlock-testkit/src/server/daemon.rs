//! The base of all test servers: a process, and a folder that outlives it.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use super::programs::{announce, version};
use crate::process::Process;

/// A server starts in half a second on an idle machine, and far more slowly on a busy one with two cores.
const START_LIMIT: Duration = Duration::from_secs(60);
pub(super) const POLL: Duration = Duration::from_millis(20);

/// A kind of server: its name, and the messages to look for in its log.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The text before the version.
    pub(super) version: &'static str,
    /// The message if its port is in use.
    pub(super) port_taken: &'static str,
    /// It is a parent of other processes, which it ends when it gets SIGQUIT.
    pub(super) is_parent: bool,
}

/// The result of a check whether a server responds.
pub(super) enum Look {
    Ready,
    NotYet,
    /// Another server responds on its port.
    Another(String),
}

/// Why a server did not start.
#[derive(Debug)]
pub(super) struct NotReady {
    port_taken: bool,
    text: String,
}

/// A server that can be stopped, restarted, frozen and inspected.
///
/// The server is killed when the last handle is dropped, and when the test process ends in any way.
#[derive(Clone, Debug)]
pub struct Daemon(Arc<Inner>);

struct Inner {
    kind: &'static Kind,
    /// `None` while it is stopped. Declared before the folder, so that the process ends before the folder is removed.
    process: Mutex<Option<Process>>,
    folder: TempDir,
    command: OnceLock<Vec<OsString>>,
    look: Box<dyn Fn() -> Look + Send + Sync>,
}

impl Daemon {
    /// Creates a server without starting it. `look` checks whether it responds.
    pub(super) fn new(
        kind: &'static Kind,
        folder: TempDir,
        look: impl Fn() -> Look + Send + Sync + 'static,
    ) -> Self {
        let (process, command) = (Mutex::new(None), OnceLock::new());
        Daemon(Arc::new(Inner { kind, process, folder, command, look: Box::new(look) }))
    }

    /// Creates an empty folder for a server.
    pub(super) fn make_folder(kind: &Kind) -> TempDir {
        Self::make_folder_in(&std::env::temp_dir(), kind)
    }

    pub(super) fn make_folder_in(parent: &Path, kind: &Kind) -> TempDir {
        let prefix = format!("zlock-{}-", kind.name.to_lowercase());
        tempfile::Builder::new().prefix(&prefix).tempdir_in(parent).expect("a folder")
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.0.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_process<R>(&self, act: impl FnOnce(&Process) -> R) -> R {
        act(self.process().as_ref().expect("a running server"))
    }

    /// Starts the process, with the command of its first start.
    pub(super) fn launch(&self, command: impl FnOnce() -> Vec<OsString>) {
        let (folder, log) = (self.folder(), self.folder().join("log"));
        let command = self.0.command.get_or_init(command);
        *self.process() =
            Some(Process::spawn_guarded(command, &[], Some(folder), Some(&log), self.0.kind.is_parent));
    }

    /// Waits until this server responds on its port, as opposed to one that was there before.
    pub(super) fn wait_until_ready(&self) -> Result<(), NotReady> {
        let Inner { kind, look, .. } = &*self.0;
        for _ in 0..START_LIMIT.as_millis() / POLL.as_millis() {
            let seen = look();
            if !self.process().as_ref().is_some_and(Process::is_running) {
                let log = self.log();
                let port_taken = log.contains(kind.port_taken);
                return Err(NotReady {
                    port_taken,
                    text: format!("{} ended while starting:\n{log}", kind.name),
                });
            }
            match seen {
                Look::Ready => {
                    announce(kind.name, &self.version());
                    return Ok(());
                }
                Look::Another(text) => return Err(NotReady { port_taken: true, text }),
                Look::NotYet => std::thread::sleep(POLL),
            }
        }
        let text = format!("{} does not answer after {START_LIMIT:?}:\n{}", kind.name, self.log());
        Err(NotReady { port_taken: false, text })
    }

    /// Ends the server without letting it finish anything: by SIGKILL, PostgreSQL by SIGQUIT. Its ports stay reserved, and its data is kept.
    ///
    /// # Panics
    /// Panics if it is already stopped.
    pub fn stop(&self) {
        drop(self.process().take().expect("a running server"));
    }

    /// Asks the server to end, by SIGTERM, and waits until it has. Its ports stay reserved, and its data is kept.
    ///
    /// # Panics
    /// Panics if it is already stopped.
    pub async fn shut_down(&self) {
        let process = self.process().take().expect("a running server");
        process.terminate();
        process.wait().await;
    }

    /// Kills the server if it is running, and starts it again on the same ports with the same data. Returns when it responds.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&self) {
        drop(self.process().take());
        let server = self.clone();
        tokio::task::spawn_blocking(move || {
            server.launch(|| unreachable!("it was started before"));
            server.wait_until_ready().unwrap_or_else(|why| panic!("{}", why.text));
        })
        .await
        .expect("a restart");
    }

    /// Freezes all processes of the server: connections stay open, the system accepts new ones, and the server does not respond.
    pub fn pause(&self) {
        self.on_process(Process::pause);
    }

    /// Continues a frozen server.
    pub fn resume(&self) {
        self.on_process(Process::resume);
    }

    /// Makes the server's disk hang until the returned value is dropped. The server still responds to requests that need no
    /// disk. See [`have_strace`](crate::have_strace).
    ///
    /// # Panics
    /// If `strace` cannot trace it.
    #[must_use]
    pub fn hang_disk(&self) -> Process {
        self.on_process(Process::hang_syncs)
    }

    /// Returns the process ID of the running server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.on_process(Process::pid)
    }

    /// Returns the server's folder, with its log, configuration and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.folder.path()
    }

    /// Returns the server's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// Returns the version that the server has logged.
    ///
    /// # Panics
    /// Panics if it has logged none.
    #[must_use]
    pub fn version(&self) -> String {
        version(&self.log(), self.0.kind.version)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.kind.name).field("folder", &self.folder.path()).finish_non_exhaustive()
    }
}

/// Starts a server, and retries with other ports if another program has taken one after the check.
pub(super) fn retry_taken_ports<T>(mut start: impl FnMut() -> Result<T, NotReady>) -> T {
    for _ in 0..4 {
        match start() {
            Err(NotReady { port_taken: true, .. }) => {}
            other => return other.unwrap_or_else(|why| panic!("{}", why.text)),
        }
    }
    start().unwrap_or_else(|why| panic!("{}", why.text))
}
