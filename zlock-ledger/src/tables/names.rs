//! The names of scopes and entries in the tables.

use crate::{Kind, Scope};
use sha2::{Digest, Sha256};

/// The number of locks that scopes share, as a power of two.
const STRIPE_BITS: u32 = 13;

/// Makes the names. They are hashes that nobody can foresee who does not know the salt.
#[derive(Clone, Debug)]
pub struct Names {
    salt: Vec<u8>,
}

impl Names {
    /// Creates them from the salt of the store.
    #[must_use]
    pub fn new(salt: Vec<u8>) -> Self {
        Names { salt }
    }

    fn hash(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut hash = Sha256::new_with_prefix(&self.salt);
        parts.iter().for_each(|part| hash.update(part));
        hash.finalize()[..16].to_vec()
    }

    /// Returns the name of a scope.
    #[must_use]
    pub fn scope(&self, scope: &Scope) -> Vec<u8> {
        self.hash(&[&[16 + kind_byte(scope.kind)], scope.path.as_bytes()])
    }

    /// Returns the name of an entry. The fence of a user's transaction computes that of a node, for which it has only the ID.
    #[must_use]
    pub fn entry(&self, scope: &Scope, key: &str) -> Vec<u8> {
        match scope.kind {
            Kind::Queue => self.hash(&[&[0], key.as_bytes()]),
            kind => self.hash(&[&[kind_byte(kind)], scope.path.as_bytes(), &[0], key.as_bytes()]),
        }
    }
}

/// Returns the lock of a scope by its name.
#[must_use]
pub fn stripe(scope: &[u8]) -> i32 {
    let first = scope.iter().take(2).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    (first >> (16 - STRIPE_BITS)).cast_signed()
}

fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::Queue => 0,
        Kind::Group => 1,
        Kind::Value => 2,
    }
}

/// Returns the number of a kind in the tables.
#[must_use]
pub fn kind_number(kind: Kind) -> i32 {
    i32::from(kind_byte(kind))
}

/// Returns `true` for a queue, whose entries are nodes.
#[must_use]
pub fn is_queue(scope: &Scope) -> bool {
    scope.kind == Kind::Queue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_all_that_they_are_made_of() {
        let names = Names::new(vec![1; 32]);
        let scope = |kind, path: &str| Scope { kind, path: path.into() };
        let mut all = Vec::new();
        for kind in [Kind::Queue, Kind::Group, Kind::Value] {
            all.push(names.scope(&scope(kind, "/a")));
            all.push(names.scope(&scope(kind, "/b")));
            all.push(names.entry(&scope(kind, "/a"), "k"));
            all.push(names.entry(&scope(kind, "/a"), "l"));
        }
        all.push(names.entry(&scope(Kind::Group, "/b"), "k"));
        all.push(Names::new(vec![2; 32]).scope(&scope(Kind::Queue, "/a")));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|name| name.len() == 16 && (0..8192).contains(&stripe(name))));
        assert_eq!((stripe(&[255; 16]), stripe(&[0; 16]), stripe(&[0, 8])), (8191, 0, 1));
    }
}
