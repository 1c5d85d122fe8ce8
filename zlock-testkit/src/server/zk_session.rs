//! Ends a ZooKeeper session as its own client would, because ZooKeeper has no command for it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);

/// Takes over a session at this server and closes it. Returns `false` if there is no such session.
///
/// # Errors
/// The server does not respond.
pub fn end_zookeeper_session(server: SocketAddr, session: u64) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // Protocol version, last zxid seen, timeout, session, password, not read-only.
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes());
    connect.extend(0_i64.to_be_bytes());
    connect.extend(3000_i32.to_be_bytes());
    connect.extend(session.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(session));
    connect.push(0);
    send(&mut stream, &connect)?;
    let answer = receive(&mut stream)?;
    // Version, timeout, session: zero if it has expired.
    let granted = answer.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
    if granted != session {
        return Ok(false);
    }
    let mut close = Vec::new();
    close.extend(1_i32.to_be_bytes());
    close.extend((-11_i32).to_be_bytes());
    send(&mut stream, &close)?;
    receive(&mut stream).map(|_| true)
}

/// Returns the password of a session. ZooKeeper derives it from the session's ID with Java's `Random`.
fn password(session: u64) -> [u8; 16] {
    const SECRET: u64 = 0xB341_5C00;
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session ^ SECRET) ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for four in password.chunks_mut(4) {
        seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        let number = u32::try_from(seed >> 16).expect("32 of 48 bits");
        four.copy_from_slice(&number.to_le_bytes());
    }
    password
}

fn send(stream: &mut TcpStream, packet: &[u8]) -> io::Result<()> {
    let length = u32::try_from(packet.len()).expect("a short packet");
    stream.write_all(&[&length.to_be_bytes(), packet].concat())
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut packet = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_as_java_makes_them() {
        // By `new Random(0x100001234560001L ^ 0xB3415C00L).nextBytes(..)`.
        let expected = [59, 253, 158, 232, 53, 42, 82, 226, 59, 178, 166, 120, 58, 22, 58, 141];
        assert_eq!(password(0x0100_0012_3456_0001), expected);
    }
}
