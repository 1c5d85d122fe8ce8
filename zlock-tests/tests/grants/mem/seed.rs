//! The same seed gives the same run.

use std::fmt::Write;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::Instant;
use zlock::Client;
use zlock::mem::{Fault, MemServer, Operation};

/// Returns a text of the events of six contending clients while requests, responses and a session are lost.
fn history(seed: u64) -> String {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (server, began) = (MemServer::new(), Instant::now());
        for (operation, n) in [(Operation::Create, 3), (Operation::List, 11), (Operation::Watch, 5)] {
            server.inject(Fault::lose_answer(operation).after(n).times(2));
            server.inject(Fault::lose_request(operation).after(2 * n));
        }
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for i in 0..6 {
            let backend = server.connect();
            let link = backend.link();
            let client = Client::builder(backend).with_seed(seed + i).build();
            let (lock, tell) = (client.mutex("/app/lock").unwrap(), tell.clone());
            tasks.spawn(async move {
                for round in 0..5 {
                    if (i, round) == (2, 2) {
                        link.expire();
                    }
                    let line = match lock.acquire_timeout(Duration::from_millis(700)).await {
                        Ok(guard) => {
                            let name = lock.participants().await.map(|p| p[0].name.clone());
                            tokio::time::sleep(Duration::from_millis(30 * (i + 1))).await;
                            format!("{} {name:?} {:?}", guard.fencing_token(), guard.release().await)
                        }
                        Err(e) => e.to_string(),
                    };
                    tell.send(format!("{:?} {i}/{round} {line}", began.elapsed())).unwrap();
                }
            });
        }
        tasks.join_all().await;
        drop(tell);
        let mut history = String::new();
        while let Some(line) = told.recv().await {
            writeln!(history, "{line}").unwrap();
        }
        history
    })
}

#[test]
fn the_same_seed_is_the_same_run() {
    let first = history(7);
    assert!(first.lines().count() == 30 && first.contains("_c_"), "{first}");
    for _ in 0..3 {
        assert_eq!(history(7), first);
    }
    assert_ne!(history(8), first);
}
