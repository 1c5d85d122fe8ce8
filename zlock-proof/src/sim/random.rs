//! Random numbers from a seed.

use std::time::Duration;

/// SplitMix64, which generates the same numbers from the same seed on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates the generator of one actor. Each actor has its own, so that actors do not affect each other's numbers.
    pub(crate) fn of(seed: u64, actor: u64) -> Self {
        let mut random = Random(seed);
        random.0 = random.next() ^ actor.wrapping_mul(0xd6e8_feb8_6659_fd93);
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `0..n`, or 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Returns an index into a list of this length.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns a number in `from..=to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Returns `true` once in `n` times on average, and never if `n` is 0.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.place(of.len())]
    }

    /// Returns a duration of less than `n` milliseconds.
    pub(crate) fn millis(&mut self, n: u64) -> Duration {
        Duration::from_millis(self.below(n))
    }
}
