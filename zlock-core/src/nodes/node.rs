//! Nodes: places in a lock's queue.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::nodes::label::Label;
use crate::nodes::name::{NodeName, ParsedName};
use crate::nodes::node_id::NodeId;
use crate::nodes::sequence::Sequence;
use crate::session::SessionId;

/// The data of a node whose holder is asked to release the lock. Curator's `Revoker` writes the same.
pub const REVOKE: &[u8] = b"__REVOKE__";

/// A token that orders the holders of a lock. Of two holders that exclude each other, the later has the larger token,
/// even if the lock's path was removed and created again in between.
///
/// Pass it to the storage that the lock protects, and let the storage refuse every token below the highest one it has
/// seen. Then a former holder that has not noticed the loss of the lock can do no harm.
///
/// A token is a pair, compared by number first and turn second:
/// - The [`number`](FencingToken::number) comes from the store: ZooKeeper's `czxid`, etcd's create revision, a number
///   of PostgreSQL's sequence, the mem server's transaction number. Locks taken with Curator or Go's `concurrency` package on the same path have
///   comparable numbers.
/// - The [`turn`](FencingToken::turn) distinguishes holders that share one node. It is 0 unless the lock was handed over
///   inside a client.
///
/// # Examples
/// Storing the highest token seen, and refusing older ones:
/// ```
/// # use zlock::FencingToken;
/// struct Storage {
///     highest: [u8; 12], // or 12 bytes in a `BYTEA` or `VARBINARY` column
/// }
///
/// impl Storage {
///     fn write(&mut self, token: FencingToken) -> Result<(), &'static str> {
///         if token.to_be_bytes() < self.highest {
///             return Err("a later holder has written already");
///         }
///         self.highest = token.to_be_bytes();
///         Ok(())
///     }
/// }
///
/// let mut storage = Storage { highest: [0; 12] };
/// assert!(storage.write(FencingToken::new(8)).is_ok());
/// assert!(storage.write(FencingToken::new(7)).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken {
    number: u64,
    turn: u32,
}

impl FencingToken {
    /// Creates a token with this number and turn 0.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        FencingToken { number, turn: 0 }
    }

    /// Returns a token with the same number and this turn.
    #[must_use]
    pub const fn with_turn(self, turn: u32) -> Self {
        FencingToken { number: self.number, turn }
    }

    /// Returns the number that the store gave to the lock's node.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// println!("the lock's node has the number {}", guard.fencing_token().number());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Returns the position among the holders that share one node, starting at 0.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// assert_eq!(guard.fencing_token().turn(), 0); // not handed over inside this client
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn turn(self) -> u32 {
        self.turn
    }

    /// Returns the token as 12 bytes in big-endian order, number first. Comparing the bytes compares the tokens.
    ///
    /// # Examples
    /// ```
    /// # use zlock::FencingToken;
    /// let (earlier, later) = (FencingToken::new(7), FencingToken::new(8));
    /// assert!(earlier.to_be_bytes() < later.to_be_bytes());
    /// ```
    #[must_use]
    pub const fn to_be_bytes(self) -> [u8; 12] {
        let ([a, b, c, d, e, f, g, h], [i, j, k, l]) = (self.number.to_be_bytes(), self.turn.to_be_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Creates a token from the bytes that [`to_be_bytes`](FencingToken::to_be_bytes) returned.
    ///
    /// # Examples
    /// ```
    /// # use zlock::FencingToken;
    /// let token = FencingToken::new(7);
    /// assert_eq!(FencingToken::from_be_bytes(token.to_be_bytes()), token);
    /// ```
    #[must_use]
    pub const fn from_be_bytes([a, b, c, d, e, f, g, h, i, j, k, l]: [u8; 12]) -> Self {
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        FencingToken { number, turn: u32::from_be_bytes([i, j, k, l]) }
    }
}

/// Equivalent to [`FencingToken::to_be_bytes`].
impl From<FencingToken> for [u8; 12] {
    fn from(token: FencingToken) -> Self {
        token.to_be_bytes()
    }
}

/// Equivalent to [`FencingToken::from_be_bytes`].
impl From<[u8; 12]> for FencingToken {
    fn from(bytes: [u8; 12]) -> Self {
        FencingToken::from_be_bytes(bytes)
    }
}

/// The number in the upper bits and the turn in the lower 32. Comparing the integers compares the tokens.
impl From<FencingToken> for u128 {
    fn from(token: FencingToken) -> Self {
        u128::from(token.number) << 32 | u128::from(token.turn)
    }
}

/// The inverse of the conversion to `u128`. Fails with [`ErrorKind::InvalidArgument`] for an integer of more than 96
/// bits.
impl TryFrom<u128> for FencingToken {
    type Error = Error;

    fn try_from(integer: u128) -> Result<Self> {
        let Ok(number) = u64::try_from(integer >> 32) else {
            let message = format!("{integer} has more than 96 bits");
            return Err(Error::new(ErrorKind::InvalidArgument, "fencing token").with_message(message));
        };
        let [.., i, j, k, l] = integer.to_be_bytes();
        Ok(FencingToken { number, turn: u32::from_be_bytes([i, j, k, l]) })
    }
}

/// Writes the number, followed by a dot and the turn unless the turn is 0.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.turn {
            0 => self.number.fmt(f),
            turn => write!(f, "{}.{turn}", self.number),
        }
    }
}

/// A place in a lock's queue.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The name under the lock's path; on etcd, the last segment of its key.
    pub name: NodeName,
    /// The ID that the creator chose.
    pub id: NodeId,
    /// The kind of lock that it asks for.
    pub label: Label,
    /// The place in the queue.
    pub sequence: Sequence,
    /// The session that owns the node. Set for own nodes, and for others if the store's listing includes it.
    pub session: Option<SessionId>,
    /// The fencing token. Set in the same cases as `session`.
    pub fencing_token: Option<FencingToken>,
}

impl Node {
    /// Creates a node without an owner or a fencing token.
    #[must_use]
    pub fn new(name: NodeName, id: NodeId, label: Label, sequence: Sequence) -> Self {
        Node { name, id, label, sequence, session: None, fencing_token: None }
    }

    /// Parses a name from a store's listing, and returns `None` for a name that is not a place in a queue.
    #[must_use]
    pub fn listed(name: impl Into<Arc<str>>) -> Option<Self> {
        let name = NodeName::new(name);
        let ParsedName { id, label, sequence } = NodeName::parse(name.as_str())?;
        Some(Node::new(name, id, label, sequence))
    }

    /// Sets the session that owns the node, if any, and the node's fencing token.
    #[must_use]
    pub fn with_owner(mut self, session: Option<SessionId>, fencing_token: FencingToken) -> Self {
        (self.session, self.fencing_token) = (session, Some(fencing_token));
        self
    }

    /// Sets the name and the label, as a relabel does.
    #[must_use]
    pub fn relabelled(mut self, name: NodeName, label: Label) -> Self {
        (self.name, self.label) = (name, label);
        self
    }
}

/// A node's data, with what the store reports beside it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeData {
    /// The bytes of the last write.
    pub data: Vec<u8>,
    /// The session that owns the node, if any.
    pub session: Option<SessionId>,
    /// The time at which the node was created, by a server's clock, on stores that report it. For display only.
    pub created: Option<SystemTime>,
    /// The fencing token of a holder with this node, if the store reports it. On ZooKeeper, a relabel creates a new node, and
    /// this is the token of the new one.
    pub fencing_token: Option<FencingToken>,
}

impl NodeData {
    /// Creates the data of a node that this session owns, without a time of creation and a fencing token.
    #[must_use]
    pub fn new(data: Vec<u8>, session: Option<SessionId>) -> Self {
        NodeData { data, session, created: None, fencing_token: None }
    }

    /// Sets the time of creation.
    #[must_use]
    pub fn with_created(mut self, created: SystemTime) -> Self {
        self.created = Some(created);
        self
    }

    /// Sets the fencing token.
    #[must_use]
    pub fn with_fencing_token(mut self, token: FencingToken) -> Self {
        self.fencing_token = Some(token);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fencing_tokens_keep_their_order_in_every_form() {
        let node_ids = [(0, 0), (0, 1), (1, 0), (7, u32::MAX), (8, 0), (u64::MAX, u32::MAX)]
            .map(|(number, turn)| FencingToken::new(number).with_turn(turn));
        for pair in node_ids.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].to_be_bytes() < pair[1].to_be_bytes());
            assert!(u128::from(pair[0]) < u128::from(pair[1]));
        }
        for node_id in node_ids {
            assert_eq!(FencingToken::from(<[u8; 12]>::from(node_id)), node_id);
            assert_eq!(FencingToken::try_from(u128::from(node_id)).unwrap(), node_id);
        }
        assert!(FencingToken::try_from(1 << 96).is_err());
        assert_eq!((node_ids[2].to_string(), node_ids[1].to_string()), ("1".to_owned(), "0.1".to_owned()));
    }
}
