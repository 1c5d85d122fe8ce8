//! Reserved ports on the loopback address.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// A TCP port on 127.0.0.1 that no other user of this crate uses until it is dropped, so that a server can be stopped and
/// started again on it.
///
/// The port is below Linux's range for outgoing connections. What reserves it for this process is the UDP port whose number is
/// smaller by 7,000: the system gives it to one process at a time, and takes it back when the process ends.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reserves: UdpSocket,
}

/// Below Linux's ephemeral ports (from 32768), and above the default ports of servers.
const RANGE: std::ops::Range<u16> = 25_000..32_000;
/// From a port to the one that reserves it: the length of the range, so that no port is both.
const RESERVES: u16 = RANGE.end - RANGE.start;

impl Port {
    /// Reserves a free port.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    pub fn reserve() -> Self {
        for _ in 0..1000 {
            let number = fastrand::u16(RANGE);
            // Another program may have the port itself, so try to bind it, too.
            if let Ok(reserves) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number - RESERVES))
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                return Port { number, _reserves: reserves };
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// So many that some numbers are drawn twice.
    #[test]
    fn a_port_is_given_once() {
        let ports: Vec<_> = (0..400).map(|_| Port::reserve()).collect();
        let numbers: BTreeSet<_> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }
}
