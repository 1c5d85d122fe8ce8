//! Splits streams of bytes into requests and responses.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How to split a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Into the bytes that arrive together.
    Raw,
    /// Into ZooKeeper's frames. Each begins with four bytes of length. After the first frame, four bytes with the request's
    /// number follow, which the response repeats. In a request, the next four bytes are its kind.
    ZooKeeper,
}

/// The kinds of ZooKeeper requests, for [`zookeeper_request`].
#[allow(missing_docs, reason = "ZooKeeper's own names")]
pub mod zk_op {
    pub const DELETE: i32 = 2;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const GET_EPHEMERALS: i32 = 103;
}

/// Returns a filter for ZooKeeper requests of these kinds, for [`FaultProxy::lose_next`](super::FaultProxy::lose_next).
pub fn zookeeper_request(kinds: &'static [i32]) -> impl Fn(&[u8]) -> bool + Send + 'static {
    |frame| kinds.iter().any(|kind| frame.get(8..12) == Some(&kind.to_be_bytes()))
}

/// The maximum length of a frame. Bytes that would mean a larger length belong to a four-letter word, its response or another
/// protocol. They are passed on four bytes at a time.
const MAX_FRAME: usize = 64 << 20;

impl Framing {
    /// Reads the next unit, including its length. Returns `None` at the end.
    pub(super) async fn read(self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
        let mut unit = match self {
            Framing::Raw => vec![0; 64 * 1024],
            Framing::ZooKeeper => vec![0; 4],
        };
        let read = from.read(&mut unit).await?;
        if read == 0 {
            return Ok(None);
        }
        if self == Framing::Raw {
            unit.truncate(read);
            return Ok(Some(unit));
        }
        from.read_exact(&mut unit[read..]).await?;
        let length = u32::from_be_bytes([unit[0], unit[1], unit[2], unit[3]]) as usize;
        if length > MAX_FRAME {
            return Ok(Some(unit));
        }
        unit.resize(4 + length, 0);
        from.read_exact(&mut unit[4..]).await?;
        Ok(Some(unit))
    }

    /// Returns `true` if `answer` responds to `request`.
    pub(super) fn answers(self, request: &[u8], answer: &[u8]) -> bool {
        self == Framing::Raw || request.get(4..8) == answer.get(4..8)
    }

    /// Returns `true` if the connection's n-th unit is a request. ZooKeeper's first unit is the handshake.
    pub(super) fn is_request(self, n: usize) -> bool {
        self == Framing::Raw || n > 0
    }
}
