//! The line between the two processes of `zlock run`. Its end tells each of them that the other one is gone.

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

/// What one process says to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// From the front: this signal is for the command.
    Signal(i32),
    /// From the front: when is the deadline now? The front asks again only when it has the answer, so that a front that is
    /// stopped gets no heap of them. Before a command runs this says that the front is ready.
    Ask,
    /// From the keeper: the command runs, as the leader of this process group.
    Started(i32),
    /// From the keeper: unless it says otherwise by then, the front is to kill everything at this time, in nanoseconds on
    /// the boot-time clock. The answer to `Ask`; unasked before the command is started, and when all is dead.
    Deadline(u64),
    /// From the keeper: the command was stopped by this signal.
    Stopped(i32),
    /// From the keeper: no command runs, and none will; the exit code. What is left is to release the lock.
    Done(u8),
}

/// The length of a message: its kind and a number.
const LEN: usize = 9;

impl Message {
    fn encode(self) -> [u8; LEN] {
        let (kind, number) = match self {
            Message::Signal(signal) => (1, u64::from(signal.unsigned_abs())),
            Message::Ask => (2, 0),
            Message::Started(group) => (3, u64::from(group.unsigned_abs())),
            Message::Deadline(nanos) => (4, nanos),
            Message::Stopped(signal) => (5, u64::from(signal.unsigned_abs())),
            Message::Done(code) => (6, u64::from(code)),
        };
        let mut bytes = [kind; LEN];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn decode([kind, number @ ..]: [u8; LEN]) -> Option<Self> {
        let number = u64::from_le_bytes(number);
        let small = i32::try_from(number);
        Some(match kind {
            1 => Message::Signal(small.ok()?),
            2 => Message::Ask,
            3 => Message::Started(small.ok()?),
            4 => Message::Deadline(number),
            5 => Message::Stopped(small.ok()?),
            6 => Message::Done(u8::try_from(number).ok()?),
            _ => return None,
        })
    }
}

/// One end of the line.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// The part of the next message that has arrived.
    bytes: [u8; LEN],
    len: usize,
}

impl Link {
    /// Uses one end of a pair of sockets. Must be called inside a runtime.
    pub(super) fn new(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Link { stream: UnixStream::from_std(stream)?, bytes: [0; LEN], len: 0 })
    }

    /// Sends a message without waiting. Messages are few, so there is room for them even if the other process is stopped.
    /// If that is gone, `receive` says so.
    pub(super) fn send(&self, message: Message) {
        // Not `try_write`, which sends nothing before the runtime has looked at the socket.
        let _ = rustix::io::write(&self.stream, &message.encode());
    }

    /// Receives a message; `None` if the other process is gone.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn receive(&mut self) -> Option<Message> {
        while self.len < LEN {
            match self.stream.read(&mut self.bytes[self.len..]).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.len += n,
            }
        }
        self.len = 0;
        Message::decode(self.bytes)
    }

    /// Receives a message that has arrived, even if the runtime has not noticed yet; `None` if there is none.
    pub(super) fn try_receive(&mut self) -> Option<Message> {
        while self.len < LEN {
            match rustix::io::read(&self.stream, &mut self.bytes[self.len..]) {
                Ok(n @ 1..) => self.len += n,
                // Whether the other process is gone, `receive` says.
                _ => return None,
            }
        }
        self.len = 0;
        Message::decode(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_arrive_as_they_were_sent() {
        let (one, other) = StdStream::pair().unwrap();
        let (front, mut keeper) = (Link::new(one).unwrap(), Link::new(other).unwrap());
        let messages = [
            Message::Signal(15),
            Message::Ask,
            Message::Started(i32::MAX),
            Message::Deadline(u64::MAX),
            Message::Stopped(20),
            Message::Done(255),
        ];
        messages.iter().for_each(|message| front.send(*message));
        for message in messages {
            assert_eq!(keeper.receive().await, Some(message));
        }
        drop(front);
        assert_eq!(keeper.receive().await, None);
    }

    /// The runtime looks at the socket only when all tasks wait.
    #[tokio::test]
    async fn what_has_arrived_is_received_without_the_runtime() {
        let (one, other) = StdStream::pair().unwrap();
        let (front, mut keeper) = (Link::new(one).unwrap(), Link::new(other).unwrap());
        assert_eq!(keeper.try_receive(), None);
        front.send(Message::Ask);
        front.send(Message::Done(3));
        assert_eq!(keeper.try_receive(), Some(Message::Ask));
        assert_eq!(keeper.receive().await, Some(Message::Done(3)));
        assert_eq!(keeper.try_receive(), None);
        drop(front);
        assert_eq!((keeper.try_receive(), keeper.receive().await), (None, None));
    }

    #[tokio::test]
    async fn a_process_that_is_stopped_does_not_stop_the_other() {
        let (one, other) = StdStream::pair().unwrap();
        let (front, _stopped) = (Link::new(one).unwrap(), other);
        for _ in 0..100_000 {
            front.send(Message::Ask);
        }
    }
}
