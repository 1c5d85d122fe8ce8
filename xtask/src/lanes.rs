//! Runs test programs in parallel.

use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::programs::Program;

/// The number of programs that run at once. A program has one test thread for each core, but most tests wait for a server to
/// start or a session to end. On average, a program uses a quarter of the cores.
const LANES: usize = 4;

/// The programs that start clusters or use every core. No two of them run at once.
const HEAVY: [(&str, &str); 6] = [
    ("zlock-cli", "tests/loss.rs"),
    ("zlock-cli", "tests/replaced.rs"),
    ("zlock-proof", "tests/chaos.rs"),
    ("zlock-tests", "tests/clusters/main.rs"),
    ("zlock-tests", "tests/connect/main.rs"),
    ("zlock-tests", "tests/interop/main.rs"),
];

/// Returns `true` if the program must not run in parallel with another heavy one.
pub(crate) fn is_heavy(program: &Program) -> bool {
    HEAVY.contains(&(&*program.package, &*program.source))
}

/// The programs that compute all the time, in paused time. They run at a low priority, so that the others keep real time, and no two
/// of them at once.
const PAUSED: [(&str, &str); 3] = [
    ("zlock-proof", "src/main.rs"),
    ("zlock-tests", "tests/recipes/ledger.rs"),
    ("zlock-tests", "tests/recipes/mem.rs"),
];

/// Returns `true` if the program runs at a low priority.
pub(crate) fn is_paused(program: &Program) -> bool {
    PAUSED.contains(&(&*program.package, &*program.source))
}

/// The programs whose tests wait most of the time, and so run more of them at once.
const WAITING: [(&str, &str); 4] = [
    ("zlock-tests", "tests/conformance/main.rs"),
    ("zlock-tests", "tests/recipes/etcd.rs"),
    ("zlock-tests", "tests/recipes/mysql.rs"),
    ("zlock-tests", "tests/recipes/zk.rs"),
];

/// Returns `true` if more tests of the program run at once than there are cores.
pub(crate) fn is_waiting(program: &Program) -> bool {
    WAITING.contains(&(&*program.package, &*program.source))
}

/// Calls `run` with each job, [`LANES`] at a time, but never with two of the same own list at once. Jobs of each list start in order;
/// the results are unordered.
pub(crate) fn side_by_side<T: Send, R: Send>(
    own: [Vec<T>; 2],
    shared: Vec<T>,
    run: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let queue = |jobs: Vec<T>| Mutex::new(jobs.into_iter());
    let (own, shared) = (own.map(queue), queue(shared));
    // Each list has a lane. When nothing is left in it, the lane helps with the others.
    let lane = |number: usize| {
        let lists = own.get(number).into_iter().chain([&shared]);
        let next = || {
            let mut lists = lists.clone();
            lists.find_map(|jobs| jobs.lock().unwrap_or_else(PoisonError::into_inner).next())
        };
        std::iter::from_fn(next).map(&run).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let lane = &lane;
        let lanes: Vec<_> = (0..LANES).map(|number| scope.spawn(move || lane(number))).collect();
        let join = |lane: thread::ScopedJoinHandle<'_, Vec<R>>| {
            lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        lanes.into_iter().flat_map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::Duration;

    use super::*;
    use crate::run::root;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn named_programs_exist() {
        for (package, source) in HEAVY.into_iter().chain(PAUSED).chain(WAITING) {
            assert!(root().join(package).join(source).is_file(), "{package} {source}");
            let (folder, path) = (String::new(), String::new());
            let program = Program { package: package.into(), source: source.into(), folder, path };
            let lists = [is_heavy(&program), is_paused(&program), is_waiting(&program)];
            assert_eq!(lists.iter().filter(|is_listed| **is_listed).count(), 1);
        }
    }

    #[test]
    fn every_job_runs_once_and_none_beside_another_of_its_list() {
        let running = [0, 1].map(|_| AtomicU32::new(0));
        let run = |(list, number): (usize, u32)| {
            if let Some(running) = running.get(list) {
                assert_eq!(running.fetch_add(1, SeqCst), 0);
                thread::yield_now();
                running.fetch_sub(1, SeqCst);
            }
            number
        };
        let jobs = |list, numbers: std::ops::Range<u32>| numbers.map(|n| (list, n)).collect();
        let mut done = side_by_side([jobs(0, 0..50), jobs(1, 50..80)], jobs(2, 80..100), run);
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn jobs_run_at_once() {
        for own in [0, 1] {
            let (running, changed) = (Mutex::new(0), Condvar::new());
            let wait_for_the_others = |()| {
                let mut running = running.lock().unwrap();
                *running += 1;
                changed.notify_all();
                let wait = changed.wait_timeout_while(running, LIMIT, |running| *running < LANES);
                !wait.unwrap().1.timed_out()
            };
            let met =
                side_by_side([vec![(); own], vec![(); own]], vec![(); LANES - 2 * own], wait_for_the_others);
            assert_eq!(met, [true; LANES]);
        }
    }
}
