//! Numbers below which a scope has no entry.

use std::collections::BTreeMap;

/// The number of scopes whose floors are kept.
const MAX: usize = 20_000;

/// The floors that one session knows: for a scope, a number below which it has no entry, and never will have one while the session lives.
///
/// They belong to the session. After a loss of commits, numbers may be given out again, so those of one session must never be used in a
/// request of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Floors<S>(BTreeMap<S, u64>);

impl<S> Default for Floors<S> {
    fn default() -> Self {
        Floors(BTreeMap::new())
    }
}

impl<S: Clone + Ord> Floors<S> {
    /// Returns the floor of a scope, or 0.
    pub fn get(&self, scope: &S) -> u64 {
        self.0.get(scope).copied().unwrap_or(0)
    }

    /// Raises the floor to the lowest number in a listing of the whole scope, of which a limit has cut off nothing: with [A, B, C] and
    /// a limit of two, a floor at B would hide A.
    pub fn raise(&mut self, scope: &S, listed: impl IntoIterator<Item = u64>) {
        let Some(lowest) = listed.into_iter().min() else { return };
        if self.0.len() >= MAX && !self.0.contains_key(scope) {
            self.0.clear();
        }
        let floor = self.0.entry(scope.clone()).or_default();
        *floor = lowest.max(*floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_only_rises() {
        let mut floors = Floors::default();
        floors.raise(&1, []);
        assert_eq!(floors.get(&1), 0);
        floors.raise(&1, [7, 5]);
        floors.raise(&1, [3]);
        assert_eq!((floors.get(&1), floors.get(&2)), (5, 0));
        (0..MAX).for_each(|scope| floors.raise(&(scope + 2), [1]));
        assert!(floors.0.len() <= MAX);
    }
}
