//! The line between the two processes of `zlock run`. Its end tells each of them that the other one is gone.

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

/// What one process tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// From the front: this signal is for the command.
    Signal(i32),
    /// From the front: the last deadline has arrived. No other one is sent before, so that a front that is stopped gets no
    /// heap of them.
    Ack,
    /// From the front: when is the deadline now?
    Ask,
    /// From the keeper: the command runs, as the leader of this process group.
    Started(i32),
    /// From the keeper: the front is to kill the command at this time, in nanoseconds on the boot-time clock.
    Deadline(u64),
    /// From the keeper: the command was stopped by this signal.
    Stopped(i32),
    /// From the keeper: the group was killed, because the lock is lost. What has left the group must be killed, too.
    Lost,
    /// From the keeper: the command has ended, and what was left of its group was killed.
    Ended,
    /// From the keeper: all is done; the exit code.
    Done(u8),
}

/// The length of a message: its kind and a number.
const LEN: usize = 9;

impl Message {
    fn encode(self) -> [u8; LEN] {
        let (kind, number) = match self {
            Message::Signal(signal) => (1, u64::from(signal.unsigned_abs())),
            Message::Ack => (2, 0),
            Message::Started(group) => (3, u64::from(group.unsigned_abs())),
            Message::Deadline(nanos) => (4, nanos),
            Message::Stopped(signal) => (5, u64::from(signal.unsigned_abs())),
            Message::Lost => (6, 0),
            Message::Done(code) => (7, u64::from(code)),
            Message::Ask => (8, 0),
            Message::Ended => (9, 0),
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
            2 => Message::Ack,
            3 => Message::Started(small.ok()?),
            4 => Message::Deadline(number),
            5 => Message::Stopped(small.ok()?),
            6 => Message::Lost,
            7 => Message::Done(u8::try_from(number).ok()?),
            8 => Message::Ask,
            9 => Message::Ended,
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
            Message::Ack,
            Message::Ask,
            Message::Ended,
            Message::Started(i32::MAX),
            Message::Deadline(u64::MAX),
            Message::Stopped(20),
            Message::Lost,
            Message::Done(255),
        ];
        messages.iter().for_each(|message| front.send(*message));
        for message in messages {
            assert_eq!(keeper.receive().await, Some(message));
        }
        drop(front);
        assert_eq!(keeper.receive().await, None);
    }

    #[tokio::test]
    async fn a_process_that_is_stopped_does_not_stop_the_other() {
        let (one, other) = StdStream::pair().unwrap();
        let (front, _stopped) = (Link::new(one).unwrap(), other);
        for _ in 0..100_000 {
            front.send(Message::Ack);
        }
    }
}
