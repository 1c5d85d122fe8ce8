//! Where new tokens come from.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::node::Token;

/// Makes the tokens of new nodes: UUIDs.
///
/// Its first token is random or comes from a seed. Each next one adds a fixed odd number: so no token comes twice within
/// 2^128 of them, tokens differ from the first character on, and none but the first costs a call of the operating system.
#[derive(Debug)]
pub struct Tokens {
    first: u128,
    made: AtomicU64,
}

/// 2^128 divided by the golden ratio, which spreads the multiples evenly.
const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

impl Tokens {
    /// Tokens that no other process makes, from the operating system's randomness.
    #[must_use]
    pub fn random() -> Self {
        Tokens::from_first(Uuid::new_v4().as_u128())
    }

    /// Tokens that only this seed makes: for tests on mem, never for a store that others use.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Tokens::from_first(fastrand::Rng::with_seed(seed).u128(..))
    }

    /// The next token.
    #[must_use]
    pub fn next(&self) -> Token {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let id = self.first.wrapping_add(STEP.wrapping_mul(made.into()));
        let mut text = Uuid::encode_buffer();
        Token::new(&*Uuid::from_u128(id).hyphenated().encode_lower(&mut text))
    }

    fn from_first(first: u128) -> Self {
        Tokens { first, made: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_repeats_and_chance_does_not() {
        let draw = |tokens: Tokens| (0..3).map(|_| tokens.next()).collect::<Vec<_>>();
        assert_eq!(draw(Tokens::seeded(1)), draw(Tokens::seeded(1)));
        assert_ne!(draw(Tokens::seeded(1)), draw(Tokens::seeded(2)));
        assert_ne!(draw(Tokens::random()), draw(Tokens::random()));
        assert!(Tokens::random().next().is_uuid());
    }

    #[test]
    fn tokens_spread_from_the_first_characters_on() {
        let tokens = Tokens::seeded(1);
        let beginnings: BTreeSet<_> = (0..256).map(|_| tokens.next().as_str()[..3].to_owned()).collect();
        assert!(beginnings.len() > 200, "{}", beginnings.len());
    }
}
