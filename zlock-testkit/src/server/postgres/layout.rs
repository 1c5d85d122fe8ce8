//! What the files here agree on: names, and where a server has its files.

use std::path::{Path, PathBuf};

use super::super::daemon::Kind;

pub(super) const KIND: Kind = Kind {
    name: "PostgreSQL",
    version: "starting PostgreSQL ",
    port_taken: "Address already in use",
    is_parent: true,
};

/// The user and the database of tests. The user owns the database and has no other privilege.
pub(super) const USER: &str = "zlock";

/// The operator, and the database that no test uses.
pub(super) const OPERATOR: &str = "postgres";

/// Files in the folder of the data, so that replicas have them too.
pub(super) const CERTIFICATE: &str = "server.crt";
pub(super) const KEY: &str = "server.key";

/// Files beside the folder of the data. The last one has the offset of the server's clock.
pub(super) const CLIENT_CERTIFICATE: &str = "client.crt";
pub(super) const CLIENT_KEY: &str = "client.key";
pub(super) const CLOCK: &str = "clock";

/// Returns the folder of a server's data.
pub(super) fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}
