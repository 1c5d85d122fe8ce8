//! The link between the two processes of `zlock run`. When it closes, each of them knows that the other one is gone.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

/// A message between the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// From the front: forward this signal to the command.
    Signal(i32),
    /// From the front: requests the current deadline. The front sends the next request only after a reply, so that replies
    /// do not pile up while it is stopped. Before a command runs, this means that the front is ready.
    Ask,
    /// From the command's process, right before it executes the command. If both this process and the keeper are dead and this
    /// has not arrived, the command was not started.
    Starting,
    /// From the keeper: the command is running as the leader of this process group.
    Started(i32),
    /// From the keeper: the front must kill everything at this time unless a later message replaces it. The time is in
    /// nanoseconds on the boot-time clock. Sent in reply to `Ask`, before the command is started, and when all processes
    /// are dead.
    Deadline(u64),
    /// From the keeper: the command was stopped by this signal.
    Stopped(i32),
    /// From the keeper: the exit code. No command is running or will be started; only the release of the lock remains.
    Done(u8),
    /// From the keeper: the command of a tick or key has succeeded, which is not recorded yet. Until `Done` follows, the exit code
    /// is that of a failure of zlock.
    Recording,
    /// From the keeper: the lock was lost, and the command was stopped.
    Lost,
    /// From the keeper: no command was started, and it waits for the lock again. The last deadline no longer counts.
    Waiting,
}

/// The length of a message in bytes: its kind and a number.
const LEN: usize = 9;

impl Message {
    pub(super) fn encode(self) -> [u8; LEN] {
        let (kind, number) = match self {
            Message::Signal(signal) => (1, u64::from(signal.unsigned_abs())),
            Message::Ask => (2, 0),
            Message::Started(group) => (3, u64::from(group.unsigned_abs())),
            Message::Deadline(nanos) => (4, nanos),
            Message::Stopped(signal) => (5, u64::from(signal.unsigned_abs())),
            Message::Done(code) => (6, u64::from(code)),
            Message::Lost => (7, 0),
            Message::Recording => (8, 0),
            Message::Waiting => (9, 0),
            Message::Starting => (10, 0),
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
            7 => Message::Lost,
            8 => Message::Recording,
            9 => Message::Waiting,
            10 => Message::Starting,
            _ => return None,
        })
    }
}

/// One end of the link.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// The part of the next message that has arrived so far.
    bytes: [u8; LEN],
    len: usize,
}

impl Link {
    /// Creates a link from one end of a socket pair. Must be called inside a runtime.
    pub(super) fn new(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Link { stream: UnixStream::from_std(stream)?, bytes: [0; LEN], len: 0 })
    }

    /// Returns another descriptor of this end, for a process that is being started.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.stream.as_fd().try_clone_to_owned()
    }

    /// Sends a message without waiting. Messages are few, so they fit into the socket's buffer even if the other process is
    /// stopped. If the other process is gone, `receive` reports it.
    pub(super) fn send(&self, message: Message) {
        // Not `try_write`, which sends nothing until the runtime has polled the socket.
        let _ = rustix::io::write(&self.stream, &message.encode());
    }

    /// Receives a message. Returns `None` if the other process is gone.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
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

    /// Receives a message that has arrived, even if the runtime has not noticed it yet. Returns `None` if there is none.
    pub(super) fn try_receive(&mut self) -> Option<Message> {
        while self.len < LEN {
            match rustix::io::read(&self.stream, &mut self.bytes[self.len..]) {
                Ok(n @ 1..) => self.len += n,
                // `receive` reports whether the other process is gone.
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
            Message::Lost,
            Message::Recording,
            Message::Waiting,
            Message::Starting,
        ];
        messages.iter().for_each(|message| front.send(*message));
        for message in messages {
            assert_eq!(keeper.receive().await, Some(message));
        }
        drop(front);
        assert_eq!(keeper.receive().await, None);
    }

    /// The runtime polls the socket only while all tasks are waiting.
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
