//! Runs the examples as a user does. (`order_numbers` has its own file.)
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use zlock_testkit::{Process, limit};

/// Runs an example, which must succeed, and returns its output. `cargo test` builds the examples; `cargo test --test examples`
/// uses existing builds.
fn run(name: &str, args: &[&str]) -> String {
    let (code, text) = end(name, args);
    assert_eq!(code, Some(0), "{name} {args:?}: {text}");
    text
}

fn end(name: &str, args: &[&str]) -> (Option<i32>, String) {
    let ended = Command::new(Process::built(&format!("examples/{name}"))).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    (ended.status.code(), text)
}

/// The spans of a lock, with the user's span inside the hold.
#[cfg(feature = "mem")]
#[tokio::test]
async fn opentelemetry() {
    limit(async {
        let text = run("opentelemetry", &[]);
        let all = |name: &str| -> Vec<_> {
            let prefix = format!("\t{name:13}: ");
            text.lines().filter_map(|line| line.strip_prefix(&*prefix)).map(str::to_owned).collect()
        };
        let (ids, parents) = (all("SpanId"), all("ParentSpanId"));
        assert_eq!(all("Name"), ["acquire", "ship order", "hold"], "{text}");
        assert_eq!(parents[1], ids[2], "{text}");
        assert!(text.contains("outcome: String(Owned(\"released\"))"), "{text}");
    })
    .await;
}

/// The stores on which an example succeeds, and a line of its output there.
macro_rules! on_every_store {
    ($($name:ident: $line:expr;)*) => {$(
        mod $name {
            use super::{limit, run};

            #[tokio::test]
            async fn on_mem() {
                limit(async {
                    let text = run(stringify!($name), &[]);
                    assert!(text.contains($line), "{text}");
                })
                .await;
            }

            #[cfg(feature = "zk")]
            #[tokio::test]
            async fn on_zookeeper() {
                limit(async {
                    let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
                    let url = format!("zk://{}/{}", server.connect_string(), stringify!($name));
                    let text = run(stringify!($name), &["--url", &url]);
                    assert!(text.contains($line), "{text}");
                })
                .await;
            }

            #[cfg(feature = "etcd")]
            #[tokio::test]
            async fn on_etcd() {
                limit(async {
                    let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
                    let url = format!("etcd://{}/{}", server.connect_string(), stringify!($name));
                    let text = run(stringify!($name), &["--url", &url]);
                    assert!(text.contains($line), "{text}");
                })
                .await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn on_postgres() {
                limit(async {
                    let Some(server) = zlock_testkit::postgres_or_skip().await else { return };
                    let url = format!("{}?create_schema=true&prefix=/{}", server.url(), stringify!($name));
                    let text = run(stringify!($name), &["--url", &url]);
                    assert!(text.contains($line), "{text}");
                })
                .await;
            }
        }
    )*};
}

on_every_store! {
    fenced_storage: "= the storage has \"what the second holder wrote\"";
    order_numbers_blocking: "With the lock: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n  = 10 orders, 0 duplicates";
    read_write: "= ages [24, 24], the servers differed 0 times";
    multi_lock: "= [118, 100, 82], 300 in all";
    leader: "= 6 terms, ";
    nightly: "= 5 nights, each with one whole report; attempts [1, 1, 2, 1, 1]";
    semaphore: "of 3 licences were in use at once\n";
}

/// Notifications and requests of each design.
fn herd_effect(args: &[&str]) -> Vec<(u64, u64)> {
    let row = |line: &str| {
        let mut cells = line.split('|').filter_map(|cell| cell.trim().parse().ok());
        Some((cells.next()?, cells.next()?))
    };
    run("herd_effect", args).lines().filter_map(row).collect()
}

#[tokio::test]
async fn on_mem_one_of_fifty_waiters_is_woken() {
    limit(async { assert_eq!(herd_effect(&[]), [(50, 100), (50, 52), (1, 2)]) }).await;
}

#[cfg(feature = "zk")]
#[tokio::test]
async fn on_zookeeper_one_of_fifty_waiters_is_woken() {
    limit(async {
        if !zlock_testkit::have_zookeeper() {
            return;
        }
        // A server of its own: its counters are read.
        let server = zlock_testkit::ZooKeeper::start().await;
        let rows = herd_effect(&["--url", &format!("zk://{}", server.connect_string())]);
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [50, 50, 1]);
        // Delete and list; the herd's requests depend on who comes first.
        assert_eq!(rows[2].1, 2);
        assert!(rows[0].1 >= 50 && rows[1].1 >= 50, "{rows:?}");
    })
    .await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn of_a_paused_holder_only_the_fenced_transaction_is_refused() {
    limit(async {
        let Some(server) = zlock_testkit::postgres_or_skip().await else { return };
        let text = run("fenced_transaction", &["--url", &server.url()]);
        let row = |which| format!("what the {which} holder wrote");
        let last =
            format!("  = with the fence, the row has {:?}; without, {:?}\n", row("second"), row("first"));
        assert!(text.ends_with(&last), "{text}");
        assert!(text.contains("refused: \"the lock is not held any more"), "{text}");
        assert!(text.contains("is_held() says false"), "{text}");
        let (code, text) = end("fenced_transaction", &["--url", "mem://"]);
        assert_eq!(code, Some(2), "{text}");
    })
    .await;
}

#[tokio::test]
async fn the_toy_store_serves_a_worker_whose_answers_were_lost() {
    limit(async {
        let text = run("toy_store", &[]);
        assert_eq!(text.matches("holds the lock").count(), 3, "{text}");
        assert!(text.contains("worker 2 holds the lock"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_run_says_why_and_fails_with_2() {
    limit(async {
        for (name, args, part) in [
            ("herd_effect", &["--url", "mem:"][..], "mem:: expected mem://"),
            ("read_write", &["--url", "redis://h"], "unknown scheme"),
            ("semaphore", &["--frob"], "Usage: "),
        ] {
            let (code, text) = end(name, args);
            assert_eq!(code, Some(2), "{text}");
            assert!(text.contains(part), "{text}");
        }
    })
    .await;
}
