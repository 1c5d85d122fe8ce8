//! Where new tokens come from.

use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

use crate::node::Token;

/// Makes the tokens of new nodes: random UUIDs, or for a test the same ones from the same seed.
#[derive(Debug, Default)]
pub struct Tokens(Option<Mutex<fastrand::Rng>>);

impl Tokens {
    /// Tokens that no other process makes, from the operating system's randomness.
    #[must_use]
    pub fn random() -> Self {
        Tokens(None)
    }

    /// Tokens that only this seed makes: for tests on mem, never for a store that others use.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Tokens(Some(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// The next token.
    #[must_use]
    pub fn next(&self) -> Token {
        let uuid = match &self.0 {
            None => Uuid::new_v4(),
            Some(rng) => {
                let bytes = rng.lock().unwrap_or_else(PoisonError::into_inner).u128(..).to_be_bytes();
                uuid::Builder::from_random_bytes(bytes).into_uuid()
            }
        };
        Token::new(uuid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_chance_does_not() {
        let draw = |tokens: Tokens| (0..3).map(|_| tokens.next()).collect::<Vec<_>>();
        assert_eq!(draw(Tokens::seeded(1)), draw(Tokens::seeded(1)));
        assert_ne!(draw(Tokens::seeded(1)), draw(Tokens::seeded(2)));
        assert_ne!(draw(Tokens::random()), draw(Tokens::random()));
        assert_eq!(Tokens::random().next().as_str().len(), 36);
    }
}
