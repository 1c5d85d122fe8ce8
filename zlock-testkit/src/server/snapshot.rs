//! Changes the state of ZooKeeper servers in their snapshots, because there is no request for that.

use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use super::{Ensemble, ZooKeeper, four_letter};

impl ZooKeeper {
    /// Restarts the server with these counters: a path, and the number of its next sequential child. The paths must exist, and
    /// fewer than 256 children must have been created in each. The server must have been built
    /// [`without_digests`](super::ZooKeeperBuilder::without_digests).
    ///
    /// # Panics
    /// Panics if the server does not start, or if its snapshot has an unexpected format.
    pub async fn set_counters(&self, counters: &[(&str, i32)]) {
        // The server writes a snapshot when it starts.
        self.restart().await;
        self.stop();
        edit(&newest_snapshot(self), counters);
        self.restart().await;
    }
}

impl Ensemble {
    /// [`ZooKeeper::set_counters`] for all members, which start with equal data.
    ///
    /// # Panics
    /// If the servers do not start, or a snapshot does not look as expected.
    pub async fn set_counters(&self, counters: &[(&str, i32)]) {
        let leader = self.stop_after_a_snapshot().await;
        edit(&newest_snapshot(leader), counters);
        self.copy_data_of(leader);
        start_all(self).await;
    }

    /// Returns the current state of all members, and restarts them.
    ///
    /// # Panics
    /// If the servers do not start.
    pub async fn snapshot(&self) -> Vec<u8> {
        let leader = self.stop_after_a_snapshot().await;
        let snapshot = std::fs::read(newest_snapshot(leader)).expect("a snapshot");
        start_all(self).await;
        snapshot
    }

    /// Makes the first member lose all changes since `snapshot` without noticing, and restarts all members. This is the effect
    /// of ZOOKEEPER-4643 and others. The servers must have been built
    /// [`without_digests`](super::ZooKeeperBuilder::without_digests).
    ///
    /// # Panics
    /// If the servers do not start.
    pub async fn let_the_first_forget(&self, snapshot: &[u8]) {
        let leader = &self.members()[self.leader().await];
        let srvr = leader.four_letter_word("srvr").await.expect("an answer to srvr");
        let zxid =
            four_letter::field(&srvr, "Zxid").and_then(|zxid| zxid.strip_prefix("0x")).expect("a zxid");
        self.members().iter().for_each(|member| member.stop());
        self.copy_data_of(leader);
        let data = data(&self.members()[0]);
        for entry in std::fs::read_dir(&data).expect("a server's data") {
            let file = entry.expect("a server's data").path();
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("snapshot.") || name.starts_with("log.") {
                std::fs::remove_file(file).expect("a server's data");
            }
        }
        // A snapshot's name is the last transaction that its server has seen.
        std::fs::write(data.join(format!("snapshot.{zxid}")), snapshot).expect("a snapshot");
        start_all(self).await;
    }

    /// Stops all members. Returns the one that has just written a complete snapshot.
    async fn stop_after_a_snapshot(&self) -> &ZooKeeper {
        // A leader writes a snapshot when it takes over.
        self.members().iter().for_each(|member| member.stop());
        start_all(self).await;
        let leader = self.leader().await;
        self.members().iter().for_each(|member| member.stop());
        &self.members()[leader]
    }

    fn copy_data_of(&self, leader: &ZooKeeper) {
        for member in self.members().iter().filter(|member| member.folder() != leader.folder()) {
            std::fs::remove_dir_all(data(member)).expect("a server's data");
            copy_files(&data(leader), &data(member));
        }
    }
}

async fn start_all(ensemble: &Ensemble) {
    let mut starts = JoinSet::new();
    for member in ensemble.members() {
        let member = member.clone();
        starts.spawn(async move { member.restart().await });
    }
    starts.join_all().await;
}

fn data(server: &ZooKeeper) -> PathBuf {
    server.folder().join("data/version-2")
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a data folder");
    for entry in std::fs::read_dir(from).expect("a server's data") {
        let entry = entry.expect("a server's data");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

fn newest_snapshot(server: &ZooKeeper) -> PathBuf {
    let files = std::fs::read_dir(data(server)).expect("a server's data");
    let zxid = |path: &Path| {
        let hex = path.file_name()?.to_str()?.strip_prefix("snapshot.")?;
        u64::from_str_radix(hex, 16).ok()
    };
    let paths = files.map(|entry| entry.expect("a server's data").path());
    paths.filter(|path| zxid(path).is_some()).max_by_key(|path| zxid(path)).expect("a snapshot")
}

fn edit(file: &Path, counters: &[(&str, i32)]) {
    let mut snapshot = std::fs::read(file).expect("a snapshot");
    for (parent, counter) in counters {
        let length = u32::try_from(parent.len()).expect("a path").to_be_bytes();
        let name = [&length[..], parent.as_bytes()].concat();
        let found = snapshot.windows(name.len()).position(|bytes| bytes == name);
        let node = found.unwrap_or_else(|| panic!("{parent} is not in the snapshot")) + name.len();
        // No data but its length; the access list's number; two transactions, two times, the data's version.
        let at = node + 4 + 8 + 4 * 8 + 4;
        assert_eq!(
            snapshot[at..at + 3],
            [0; 3],
            "{parent} has counted more than a few, or this is no counter"
        );
        snapshot[at..at + 4].copy_from_slice(&counter.to_be_bytes());
    }
    // At the end: the checksum of all before, and the text "/". Without digests there is nothing else to mend.
    let end = snapshot.len() - 8 - 4 - 1;
    let sum = u64::from(adler32(&snapshot[..end]));
    snapshot[end..end + 8].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(file, snapshot).expect("a snapshot");
}

fn adler32(bytes: &[u8]) -> u32 {
    let step = |(a, b), byte: &u8| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_adler_32() {
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
    }
}
