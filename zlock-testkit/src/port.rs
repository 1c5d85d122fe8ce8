//! Reserved ports on the loopback address.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// A port on 127.0.0.1 that no other user of this crate uses until it is dropped, so that a server can be stopped and started
/// again on it.
///
/// The port is below the system's range for outgoing connections. It is reserved with a file lock, which ends with the
/// process.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

/// Below Linux's ephemeral ports (from 32768), and above the default ports of servers.
const RANGE: std::ops::Range<u16> = 25_000..32_000;

impl Port {
    /// Reserves a free port.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    pub fn reserve() -> Self {
        let folder = std::env::temp_dir().join("zlock-testkit-ports");
        std::fs::create_dir_all(&folder).expect("a folder for port locks");
        for _ in 0..1000 {
            let number = fastrand::u16(RANGE);
            let path = folder.join(number.to_string());
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = file.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            // A program that does not use the file locks may have the port, so try to bind it too.
            if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Port { number, _lock: file };
            }
        }
        panic!("no free port in {RANGE:?}");
    }

    /// Returns the port number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the address: 127.0.0.1 and the port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}
