//! Folders for servers, in memory if there is room.

use std::path::PathBuf;

use tempfile::TempDir;

use super::daemon::{Daemon, Kind};

/// A server needs far less. In a container, the memory's file system may have 64 MB.
const ROOM: u64 = 512 << 20;

/// Returns a folder for a server: in memory if there is room.
pub(super) fn roomy_folder(kind: &Kind) -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    let room = rustix::fs::statvfs(&memory).map_or(0, |room| room.f_bavail * room.f_frsize);
    let parent = if room < ROOM { std::env::temp_dir() } else { memory };
    Daemon::make_folder_in(&parent, kind)
}
