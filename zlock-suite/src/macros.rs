//! The macros that make tests of the cases. The lists of cases are collected by `build.rs`.

/// Generates the tests of the contract: `conformance!(paused | real, store)`, each named `<group>::<method>::<case>`. `store`
/// is a future of `Option<impl Store>`, created anew for each test. `conformance!(paused | real, store, except [group, ..])`
/// leaves groups out, and with `[group, ..]` only these run. See the [crate's documentation](crate).
#[macro_export]
macro_rules! conformance {
    ($time:ident, $store:expr) => {
        $crate::conformance!($time, $store, except []);
    };
    ($time:ident, $store:expr, except [$($except:ident),* $(,)?]) => {
        $crate::conformance_cases!(except [$($except),*], $time, $store);
    };
    ($time:ident, $store:expr, [$($group:ident),* $(,)?]) => {
        $($crate::conformance_cases!($group, $time, $store);)*
    };
}

/// Generates the tests of the contract [`Values`](zlock_core::Values), for a backend that has values. The groups are
/// `contract`, `watches` and `links`, and chosen as in [`conformance!`].
#[macro_export]
macro_rules! values_conformance {
    ($time:ident, $store:expr) => {
        $crate::values_conformance!($time, $store, except []);
    };
    ($time:ident, $store:expr, except [$($except:ident),* $(,)?]) => {
        $crate::values_conformance_cases!(except [$($except),*], $time, $store);
    };
    ($time:ident, $store:expr, [$($group:ident),* $(,)?]) => {
        $($crate::values_conformance_cases!($group, $time, $store);)*
    };
}

/// Generates the tests of the contract [`Groups`](zlock_core::Groups), for a backend that has groups. The groups of cases are
/// `contract`, `watches` and `links`, and chosen as in [`conformance!`].
#[macro_export]
macro_rules! groups_conformance {
    ($time:ident, $store:expr) => {
        $crate::groups_conformance!($time, $store, except []);
    };
    ($time:ident, $store:expr, except [$($except:ident),* $(,)?]) => {
        $crate::groups_conformance_cases!(except [$($except),*], $time, $store);
    };
    ($time:ident, $store:expr, [$($group:ident),* $(,)?]) => {
        $($crate::groups_conformance_cases!($group, $time, $store);)*
    };
}

/// Generates the tests for a lock that can act as a mutex ([`Mutual`](crate::Mutual)): `mutual_suite!(paused | real, store,
/// Lock)`, each named `<group>::<case>`. The groups are chosen as in [`conformance!`].
#[macro_export]
macro_rules! mutual_suite {
    ($time:ident, $store:expr, $lock:ty) => {
        $crate::mutual_suite!($time, $store, $lock, except []);
    };
    ($time:ident, $store:expr, $lock:ty, except [$($except:ident),* $(,)?]) => {
        $crate::mutual_cases!(except [$($except),*], $time, $store, $lock);
    };
    ($time:ident, $store:expr, $lock:ty, [$($group:ident),* $(,)?]) => {
        $($crate::mutual_cases!($group, $time, $store, $lock);)*
    };
}

/// Generates the tests that a lock can run through the blocking API: `thread_suite!(real, store, Lock)`. Cases for
/// [`Tasks`](crate::Tasks) are left out, and so are the groups that cancel acquisitions, unless they are named as in
/// [`conformance!`]. See [`Threads`](crate::Threads).
#[macro_export]
macro_rules! thread_suite {
    ($time:ident, $store:expr, $lock:ty) => {
        $crate::thread_suite!($time, $store, $lock, except [alone, faults, links, outlast, sweep]);
    };
    ($time:ident, $store:expr, $lock:ty, except [$($except:ident),* $(,)?]) => {
        $crate::thread_cases!(except [$($except),*], $time, $store, $crate::Threads<$lock>);
    };
    ($time:ident, $store:expr, $lock:ty, [$($group:ident),* $(,)?]) => {
        $($crate::thread_cases!($group, $time, $store, $crate::Threads<$lock>);)*
    };
}

/// Generates the tests of the groups that are about one recipe: `recipe_suite!(paused | real, store)`, each named
/// `<group>::<case>`. The groups are chosen as in [`conformance!`].
#[macro_export]
macro_rules! recipe_suite {
    ($time:ident, $store:expr) => {
        $crate::recipe_suite!($time, $store, except []);
    };
    ($time:ident, $store:expr, except [$($except:ident),* $(,)?]) => {
        $crate::recipe_cases!(except [$($except),*], $time, $store);
    };
    ($time:ident, $store:expr, [$($group:ident),* $(,)?]) => {
        $($crate::recipe_cases!($group, $time, $store);)*
    };
}

/// One test for each case of the module `cases`. A part of the macros above.
#[doc(hidden)]
#[macro_export]
macro_rules! tests {
    (paused, $store:expr, $lock:tt, [$($case:ident),*]) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $case() {
                $crate::run($store.await, true, stringify!($case), $crate::case!($case, $lock)).await;
            }
        )*
    };
    (real, $store:expr, $lock:tt, [$($case:ident),*]) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::run($store.await, false, stringify!($case), $crate::case!($case, $lock)).await;
            }
        )*
    };
}

/// The function of one case. A part of the macros above.
#[doc(hidden)]
#[macro_export]
macro_rules! case {
    ($case:ident, []) => {
        cases::$case
    };
    ($case:ident, [$lock:ty]) => {
        cases::$case::<$lock>
    };
}
