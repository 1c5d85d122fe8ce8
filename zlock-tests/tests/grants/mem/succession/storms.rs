//! Many clients and tasks at once, on several threads and in real time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock::mem::{MemBackend, MemOptions, MemServer, Operation};
use zlock::{Client, Release};

use super::{mutex, path};

/// Many clients and tasks on several threads. Some give up, drop, release, stop polling, or keep contexts.
#[test]
fn storm() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = MemServer::new();
        let shared: Arc<MemBackend> = Arc::new(server.connect());
        let clients = [
            Client::new(shared.clone()),
            Client::new(shared.clone()),
            Client::new(server.connect()),
            Client::new(server.connect()),
        ];
        let inside = Arc::new(AtomicU32::new(0));
        let (token, grants) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        let end = Instant::now() + Duration::from_secs(20);
        for n in 0..24_u64 {
            let client = clients[usize::try_from(n).unwrap() % 4].clone();
            let (inside, token, grants) = (inside.clone(), token.clone(), grants.clone());
            tasks.spawn(async move {
                let lock = mutex(&client);
                let mut random = n * 7919 + 13;
                let mut contexts = Vec::new();
                while Instant::now() < end {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let dice = (random >> 33) % 100;
                    let waited = Duration::from_micros((random >> 40) % 4000);
                    let guard = if dice < 40 {
                        match timeout(waited, lock.acquire()).await {
                            Ok(guard) => guard.unwrap(),
                            Err(_) => continue,
                        }
                    } else {
                        let begin = Instant::now();
                        let guard = lock.acquire().await.unwrap();
                        assert!(begin.elapsed() < Duration::from_secs(5), "slept {:?}", begin.elapsed());
                        guard
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    let before = token.swap(guard.fencing_token().number(), Ordering::SeqCst);
                    assert!(before < guard.fencing_token().number());
                    grants.fetch_add(1, Ordering::SeqCst);
                    if dice % 7 == 0 {
                        tokio::task::yield_now().await;
                    }
                    assert!(guard.is_held());
                    if dice % 3 == 0 {
                        contexts.push(guard.context());
                    }
                    contexts.truncate(50);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    match dice % 5 {
                        0 => drop(guard),
                        1 => {
                            let _ = timeout(waited / 20, guard.release()).await;
                        }
                        2 => {
                            let again = guard.reenter().unwrap();
                            drop(guard);
                            assert_eq!(again.release().await.unwrap(), Release::Released);
                        }
                        _ => assert_eq!(guard.release().await.unwrap(), Release::Released),
                    }
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        timeout(Duration::from_secs(5), async {
            while !server.names(&path()).is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("no node is left");
        assert_eq!(server.watches(), 0);
    });
}

/// Releases that are cancelled before they are answered, lost requests, and sessions that end.
#[test]
fn storm_of_hasty_clients() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = MemServer::new();
        let options = MemOptions::default().with_session_timeout(Duration::from_millis(1500));
        let backends: Vec<Arc<MemBackend>> =
            (0..2).map(|_| Arc::new(server.connect_with(options.clone()))).collect();
        for backend in &backends {
            backend.link().delay(Duration::from_millis(1), Duration::from_millis(2));
        }
        let client = |n: usize, millis| {
            let builder = Client::builder(backends[n].clone());
            builder.with_response_timeout(Duration::from_millis(millis)).unwrap().build()
        };
        let clients = [client(0, 2), client(0, 20), client(1, 4), client(1, 15_000)];
        let inside = Arc::new(Mutex::new(Vec::<(u64, zlock::LockContext)>::new()));
        let grants = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for n in 0..24_u64 {
            let client = clients[usize::try_from(n).unwrap() % 4].clone();
            let (inside, stop, grants) = (inside.clone(), stop.clone(), grants.clone());
            tasks.spawn(async move {
                let lock = mutex(&client);
                let mut random = n * 7919 + 13;
                let mut id = n << 32;
                while !stop.load(Ordering::SeqCst) {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    id += 1;
                    let begin = Instant::now();
                    let Ok(guard) = lock.acquire().await else {
                        sleep(Duration::from_millis(5)).await;
                        continue;
                    };
                    assert!(begin.elapsed() < Duration::from_secs(10), "slept {:?}", begin.elapsed());
                    {
                        let mut inside = inside.lock().unwrap();
                        for (other, held) in &*inside {
                            assert!(!held.is_held(), "two holders: {other} and {id}: {held:?}");
                        }
                        inside.push((id, guard.context()));
                    }
                    grants.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.lock().unwrap().retain(|(other, _)| *other != id);
                    match (random >> 33) % 3 {
                        0 => drop(guard),
                        1 => {
                            drop(timeout(Duration::from_micros((random >> 40) % 6000), guard.release()).await)
                        }
                        _ => drop(guard.release().await),
                    }
                }
            });
        }
        for round in 0..60 {
            sleep(Duration::from_millis(300)).await;
            let link = backends[round % 2].link();
            match round % 5 {
                0 => link.reset(),
                1 => server.inject(zlock::mem::Fault::lose_answer(Operation::Delete).times(2)),
                2 => server.inject(zlock::mem::Fault::lose_request(Operation::Delete).times(2)),
                3 if round % 4 == 3 => link.expire(),
                _ => {
                    link.mute();
                    sleep(Duration::from_millis(200)).await;
                    link.heal();
                }
            }
            if let Some(done) = tasks.try_join_next() {
                panic!("{done:?}");
            }
        }
        stop.store(true, Ordering::SeqCst);
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        timeout(Duration::from_secs(5), async {
            while !server.names(&path()).is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("no node is left");
    });
}
