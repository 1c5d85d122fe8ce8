//! What a client process is told: its arguments, and files that it shares with the main process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::locks::Manner;

/// The arguments of a client process.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
    pub(crate) manner: Manner,
    /// The session timeout.
    pub(crate) session: Duration,
}

impl Told {
    /// Returns the arguments of the process.
    pub(crate) fn to_args(&self) -> [String; 7] {
        let (folder, seed) = (self.folder.display().to_string(), self.seed.to_string());
        let (manner, session) = (format!("{:?}", self.manner), self.session.as_millis().to_string());
        ["chaos-client".to_owned(), self.url.clone(), self.name.clone(), folder, seed, manner, session]
    }

    /// Parses the arguments after the first.
    pub(crate) fn parse(args: &[String]) -> Option<Self> {
        let [url, name, folder, seed, manner, session] = args else { return None };
        let (url, name, folder) = (url.clone(), name.clone(), folder.into());
        let (seed, manner) = (seed.parse().ok()?, Manner::named(manner)?);
        let session = Duration::from_millis(session.parse().ok()?);
        Some(Told { url, name, folder, seed, manner, session })
    }

    pub(crate) fn history(&self) -> PathBuf {
        history(&self.folder, &self.name)
    }
}

/// Where a client process writes its history.
pub(crate) fn history(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.history"))
}

/// When this file exists, clients end.
pub(crate) fn stop_file(folder: &Path) -> PathBuf {
    folder.join("stop")
}

/// While this file exists, a fault affects the cluster.
pub(crate) fn storm_file(folder: &Path) -> PathBuf {
    folder.join("storm")
}

/// While this file exists, clients acquire one lock with many tasks.
pub(crate) fn crowd_file(folder: &Path) -> PathBuf {
    folder.join("crowd")
}

/// The socket of the storage.
pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("storage")
}
