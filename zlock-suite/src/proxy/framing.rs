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
    /// Into HTTP/2's frames. Each begins with nine bytes: three of length, the kind, the flags, and four with the stream's
    /// number. A client sends a preface before its first frame.
    Http2,
}

/// The kinds of ZooKeeper requests, for [`zookeeper_request`].
#[allow(missing_docs, reason = "ZooKeeper's own names")]
pub mod zk_op {
    pub const DELETE: i32 = 2;
    pub const GET_DATA: i32 = 4;
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
            Framing::Http2 => vec![0; FRAME_HEAD],
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
        if self == Framing::Http2 {
            let rest = match &unit[..] {
                head if PREFACE.starts_with(head) => PREFACE.len() - FRAME_HEAD,
                head => u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize,
            };
            unit.resize(FRAME_HEAD + rest, 0);
            from.read_exact(&mut unit[FRAME_HEAD..]).await?;
            return Ok(Some(unit));
        }
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
        self != Framing::ZooKeeper || request.get(4..8) == answer.get(4..8)
    }

    /// Returns `true` if the connection's n-th unit is a request. ZooKeeper's first unit is the handshake.
    pub(super) fn is_request(self, n: usize) -> bool {
        self != Framing::ZooKeeper || n > 0
    }
}

/// The number of bytes before the payload of an HTTP/2 frame.
const FRAME_HEAD: usize = 9;

/// What a client sends before its first HTTP/2 frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns the number of the stream that an HTTP/2 frame belongs to.
pub(super) fn stream_of(frame: &[u8]) -> Option<[u8; 4]> {
    frame.get(5..FRAME_HEAD)?.try_into().ok()
}

/// Returns the payload of an HTTP/2 frame of data.
pub(super) fn http2_data(frame: &[u8]) -> Option<&[u8]> {
    if frame.get(3) == Some(&0) { frame.get(FRAME_HEAD..) } else { None }
}

/// Returns the HTTP/2 frame with which a server ends a gRPC stream: `grpc-status` is 14, unavailable.
pub(super) fn end_of(stream: [u8; 4]) -> Vec<u8> {
    const STATUS: &[u8] = b"\x00\x0bgrpc-status\x0214";
    // Headers that are complete, and the end of the stream.
    let mut frame = vec![0, 0, STATUS.len() as u8, 1, 5];
    frame.extend(stream);
    frame.extend(STATUS);
    frame
}
