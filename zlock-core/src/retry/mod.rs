//! Retry policies.

mod backoff;

use std::time::Duration;

use tokio::time::Instant;

use self::backoff::Intervals;

/// How often and at which intervals a request is retried. The policies are those of Curator.
///
/// A policy has no state. [`start`](RetryPolicy::start) creates the state of one operation. Time is tokio's.
///
/// | here | Curator |
/// |---|---|
/// | [`exponential`](RetryPolicy::exponential) | `ExponentialBackoffRetry` |
/// | [`bounded_exponential`](RetryPolicy::bounded_exponential) | `BoundedExponentialBackoffRetry` |
/// | [`n_times`](RetryPolicy::n_times) | `RetryNTimes` |
/// | [`once`](RetryPolicy::once) | `RetryOneTime` |
/// | [`forever`](RetryPolicy::forever) | `RetryForever` |
/// | [`until_elapsed`](RetryPolicy::until_elapsed) | `RetryUntilElapsed` |
/// | [`never`](RetryPolicy::never) | `RetryNTimes(0, ..)` |
///
/// Delays below [`MIN_DELAY`](RetryPolicy::MIN_DELAY) or above [`MAX_DELAY`](RetryPolicy::MAX_DELAY) are replaced by
/// that bound. So no policy can keep a processor busy, and no number of retries can overflow.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use zlock::RetryPolicy;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut retry = RetryPolicy::n_times(2, Duration::from_millis(100)).start();
/// assert_eq!(retry.next_delay(), Some(Duration::from_millis(100)));
/// assert_eq!(retry.next_delay(), Some(Duration::from_millis(100)));
/// assert_eq!(retry.next_delay(), None);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    first: Duration,
    growth: Growth,
    max_retries: Option<u32>,
    max_elapsed: Option<Duration>,
    max_delay: Duration,
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// The same delay each time.
    None,
    /// A random delay up to a limit that doubles each time.
    Doubling,
}

impl RetryPolicy {
    /// The shortest delay.
    pub const MIN_DELAY: Duration = Duration::from_millis(1);
    /// The longest delay.
    pub const MAX_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

    const fn new(first: Duration, growth: Growth) -> Self {
        let (max_retries, max_elapsed, seed) = (None, None, None);
        RetryPolicy { first, growth, max_retries, max_elapsed, max_delay: Self::MAX_DELAY, seed }
    }

    /// Retries at most `max_retries` times. The k-th retry is made after a random delay from `base` to `base` times
    /// 2^k.
    ///
    /// Curator's `ExponentialBackoffRetry`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::RetryPolicy;
    ///
    /// let policy = RetryPolicy::exponential(Duration::from_millis(20), 10);
    /// # let _ = policy;
    /// ```
    #[must_use]
    pub const fn exponential(base: Duration, max_retries: u32) -> Self {
        let mut policy = Self::new(base, Growth::Doubling);
        policy.max_retries = Some(max_retries);
        policy
    }

    /// Same as [`exponential`](RetryPolicy::exponential), with no delay above `max_delay`.
    ///
    /// Curator's `BoundedExponentialBackoffRetry`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::RetryPolicy;
    ///
    /// let policy = RetryPolicy::bounded_exponential(Duration::from_millis(20), Duration::from_secs(1), 30);
    /// # let _ = policy;
    /// ```
    #[must_use]
    pub const fn bounded_exponential(base: Duration, max_delay: Duration, max_retries: u32) -> Self {
        Self::exponential(base, max_retries).with_max_delay(max_delay)
    }

    /// Retries `n` times, with `delay` before each retry.
    ///
    /// Curator's `RetryNTimes`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::RetryPolicy;
    ///
    /// let policy = RetryPolicy::n_times(3, Duration::from_millis(100));
    /// # let _ = policy;
    /// ```
    #[must_use]
    pub const fn n_times(n: u32, delay: Duration) -> Self {
        let mut policy = Self::forever(delay);
        policy.max_retries = Some(n);
        policy
    }

    /// Retries once, after `delay`.
    ///
    /// Curator's `RetryOneTime`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::RetryPolicy;
    ///
    /// let policy = RetryPolicy::once(Duration::from_millis(100));
    /// # let _ = policy;
    /// ```
    #[must_use]
    pub const fn once(delay: Duration) -> Self {
        Self::n_times(1, delay)
    }

    /// Retries without a limit, with `delay` before each retry.
    ///
    /// Curator's `RetryForever`. An operation with a time limit of its own still ends at that limit.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::RetryPolicy;
    ///
    /// let policy = RetryPolicy::forever(Duration::from_secs(1));
    /// # let _ = policy;
    /// ```
    #[must_use]
    pub const fn forever(delay: Duration) -> Self {
        Self::new(delay, Growth::None)
    }

    /// Retries with `delay` before each retry, as long as the retry begins within `max_elapsed` of the start.
    ///
    /// Curator's `RetryUntilElapsed`, which waits for one more delay after the time has passed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::RetryPolicy;
    ///
    /// let policy = RetryPolicy::until_elapsed(Duration::from_secs(30), Duration::from_millis(500));
    /// # let _ = policy;
    /// ```
    #[must_use]
    pub const fn until_elapsed(max_elapsed: Duration, delay: Duration) -> Self {
        let mut policy = Self::forever(delay);
        policy.max_elapsed = Some(max_elapsed);
        policy
    }

    /// Never retries.
    ///
    /// Curator's `RetryNTimes(0, ..)`.
    ///
    /// # Examples
    /// ```
    /// use zlock::RetryPolicy;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// assert_eq!(RetryPolicy::never().start().next_delay(), None);
    /// # }
    /// ```
    #[must_use]
    pub const fn never() -> Self {
        Self::n_times(0, Self::MIN_DELAY)
    }

    /// Sets the longest delay.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::RetryPolicy;
    ///
    /// let policy = RetryPolicy::exponential(Duration::from_millis(20), 30).with_max_delay(Duration::from_secs(1));
    /// # let _ = policy;
    /// ```
    #[must_use]
    pub const fn with_max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = max_delay;
        self
    }

    /// Makes the random delays the same for every start. For tests only: in production, clients that fail together
    /// would retry together.
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the retries of one operation.
    #[must_use]
    pub fn start(&self) -> Retry {
        // Most operations never retry: the clock is read only if the policy counts time.
        let began = self.max_elapsed.map(|_| Instant::now());
        Retry { policy: self.clone(), began, running: None }
    }

    fn run(&self, began: Option<Instant>) -> Running {
        let max_delay = self.max_delay.clamp(Self::MIN_DELAY, Self::MAX_DELAY);
        let first = self.first.clamp(Self::MIN_DELAY, max_delay);
        let intervals = match self.growth {
            Growth::None => Intervals::constant(first, self.max_elapsed.zip(began)),
            Growth::Doubling => Intervals::doubling((first * 2).min(max_delay), max_delay),
        };
        let jitter = (self.growth == Growth::Doubling).then(|| Jitter {
            from: first,
            rng: self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
        });
        Running { intervals, left: self.max_retries, jitter }
    }
}

/// The retries of one operation. Created by [`RetryPolicy::start`].
#[derive(Debug)]
pub struct Retry {
    policy: RetryPolicy,
    /// The instant of the start, if the policy measures the time.
    began: Option<Instant>,
    /// Set from the first failure on.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    intervals: Intervals,
    /// The number of retries left; `None` if they are not counted.
    left: Option<u32>,
    jitter: Option<Jitter>,
}

#[derive(Debug)]
struct Jitter {
    from: Duration,
    rng: fastrand::Rng,
}

impl Jitter {
    fn pick(&mut self, to: Duration) -> Duration {
        // At most a day, so the nanoseconds fit.
        let width = to.saturating_sub(self.from).as_nanos() as u64;
        self.from + Duration::from_nanos(self.rng.u64(..=width))
    }
}

impl Retry {
    /// Returns the delay before the next retry, or `None` if there are no more retries. Each call counts as one retry.
    pub fn next_delay(&mut self) -> Option<Duration> {
        let running = self.running.get_or_insert_with(|| self.policy.run(self.began));
        if running.left == Some(0) {
            return None;
        }
        let delay = running.intervals.next()?;
        running.left = running.left.map(|left| left - 1);
        Some(running.jitter.as_mut().map_or(delay, |jitter| jitter.pick(delay)))
    }

    /// Sleeps until the next retry is due and returns `true`, or returns `false` at once if there are no more retries.
    ///
    /// # Cancel safety
    /// Safe, but the retry is counted although it is not made.
    pub async fn sleep(&mut self) -> bool {
        match self.next_delay() {
            Some(delay) => {
                tokio::time::sleep(delay).await;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    fn delays(policy: &RetryPolicy, most: usize) -> Vec<Duration> {
        let mut retry = policy.start();
        std::iter::from_fn(|| retry.next_delay()).take(most).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn counted_policies_end() {
        assert_eq!(delays(&RetryPolicy::n_times(3, S), 9), [S, S, S]);
        assert_eq!(delays(&RetryPolicy::once(S), 9), [S]);
        assert_eq!(delays(&RetryPolicy::never(), 9), []);
        assert_eq!(delays(&RetryPolicy::exponential(S, 4), 9).len(), 4);
        assert_eq!(delays(&RetryPolicy::forever(S), 10_000), vec![S; 10_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn exponential_grows_and_stays_within_its_limits() {
        let mut longest = [Duration::ZERO; 8];
        for seed in 0..500 {
            let all = delays(&RetryPolicy::exponential(S, 8).with_seed(seed), 9);
            for (k, delay) in all.into_iter().enumerate() {
                assert!(delay >= S && delay <= S * 2u32.pow(k as u32 + 1), "retry {k}: {delay:?}");
                longest[k] = longest[k].max(delay);
            }
        }
        for (k, longest) in longest.into_iter().enumerate() {
            assert!(longest > S * 2u32.pow(k as u32 + 1) * 9 / 10, "retry {k} never came near its limit");
        }
    }

    /// Any number of retries: each delay is at most the limit (T47).
    #[tokio::test(start_paused = true)]
    async fn t47_no_count_overflows_and_no_delay_is_above_the_cap() {
        for base in [Duration::ZERO, MS, S, Duration::MAX] {
            for cap in [Duration::ZERO, MS, 7 * S, Duration::MAX] {
                let bounded = RetryPolicy::bounded_exponential(base, cap, u32::MAX).with_seed(1);
                let constant = RetryPolicy::forever(base).with_max_delay(cap);
                for policy in [bounded, constant] {
                    let limit = cap.clamp(RetryPolicy::MIN_DELAY, RetryPolicy::MAX_DELAY);
                    let all = delays(&policy, 5_000);
                    assert_eq!(all.len(), 5_000);
                    assert!(all.iter().all(|d| (RetryPolicy::MIN_DELAY..=limit).contains(d)), "{policy:?}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_policy_can_spin() {
        for policy in [
            RetryPolicy::forever(Duration::ZERO),
            RetryPolicy::exponential(Duration::ZERO, u32::MAX),
            RetryPolicy::until_elapsed(Duration::MAX, Duration::ZERO),
            RetryPolicy::forever(S).with_max_delay(Duration::ZERO),
        ] {
            let (mut retry, began) = (policy.start(), Instant::now());
            for _ in 0..1000 {
                assert!(retry.sleep().await);
            }
            assert!(began.elapsed() >= S, "{policy:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn until_elapsed_ends_on_the_paused_clock() {
        // Time has passed on the paused clock only: a start read from the real clock would be far off.
        tokio::time::advance(1000 * S).await;
        let (mut retry, began) = (RetryPolicy::until_elapsed(10 * S, 3 * S).start(), Instant::now());
        let mut count = 0;
        while retry.sleep().await {
            count += 1;
        }
        assert_eq!((count, began.elapsed()), (3, 9 * S));
        // The operation itself takes time, too.
        let mut retry = RetryPolicy::until_elapsed(10 * S, 3 * S).start();
        tokio::time::advance(8 * S).await;
        assert_eq!(retry.next_delay(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_can_be_started_long_after_it_was_made() {
        let policy = RetryPolicy::until_elapsed(10 * S, 3 * S);
        tokio::time::advance(100 * S).await;
        assert_eq!(policy.start().next_delay(), Some(3 * S));
    }

    #[tokio::test(start_paused = true)]
    async fn a_seed_repeats_and_chance_does_not() {
        let policy = RetryPolicy::exponential(S, 20);
        let seeded = policy.clone().with_seed(7);
        assert_eq!(delays(&seeded, 20), delays(&seeded, 20));
        assert_ne!(delays(&seeded, 20), delays(&policy.clone().with_seed(8), 20));
        assert_ne!(delays(&policy, 20), delays(&policy, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_sleeps() {
        let (mut retry, began) = (RetryPolicy::once(S).start(), Instant::now());
        assert!(retry.sleep().await);
        assert_eq!(began.elapsed(), S);
        assert!(!retry.sleep().await);
        assert_eq!(began.elapsed(), S);
    }
}
