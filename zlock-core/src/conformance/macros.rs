//! The list of cases, and the macro that makes tests of them.

/// Generates the tests of the named groups: `conformance!(paused | real, store, [group, ..])`. `store` is a
/// future of `Option<impl Store>`, made anew for each test. See [`conformance`](mod@crate::conformance).
#[macro_export]
macro_rules! conformance {
    ($time:ident, $store:expr, [$($group:ident),* $(,)?]) => {
        $(
            mod $group {
                use super::*;
                $crate::conformance_group!($group, $time, $store);
            }
        )*
    };
}

/// The cases of each group. A part of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_group {
    (contract, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, {
            create: [at_the_end_of_the_queue, returned_queue_has_the_node],
        });
    };
    (numbers, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, {});
    };
    (watches, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, {});
    };
    (links, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, {});
    };
}

/// One test a case. A part of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($time:ident, $store:expr, { $($method:ident: $cases:tt),* $(,)? }) => {
        $(
            mod $method {
                use super::*;
                $crate::conformance_tests!($time, $store, $method, $cases);
            }
        )*
    };
}

/// The tests of one method. A part of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (paused, $store:expr, $method:ident, [$($case:ident),* $(,)?]) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $case() {
                let case = $crate::conformance::cases::$method::$case;
                $crate::conformance::run($store.await, stringify!($case), case).await;
            }
        )*
    };
    (real, $store:expr, $method:ident, [$($case:ident),* $(,)?]) => {
        $(
            #[tokio::test]
            async fn $case() {
                let case = $crate::conformance::cases::$method::$case;
                $crate::conformance::run($store.await, stringify!($case), case).await;
            }
        )*
    };
}
