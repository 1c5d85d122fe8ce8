//! T60: memory stays constant over ten thousand timeouts and ten thousand hand-overs. The test is alone in its process, so that
//! no other memory is counted.
#![cfg(target_os = "linux")]

use std::time::Duration;

use zlock::mem::MemServer;
use zlock::{Client, Release};

/// Returns the memory that this process uses, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(start_paused = true)]
async fn t60_memory_is_flat() {
    let server = MemServer::new();
    let [a, b] = [0, 1].map(|_| Client::new(server.connect()));
    let [first, second] = [&a, &b].map(|client| client.mutex("/app/lock").unwrap());
    let round = async || {
        let guard = first.acquire().await.unwrap();
        assert!(second.acquire_timeout(Duration::from_millis(2)).await.unwrap_err().is_timeout());
        let waiter = second.clone();
        let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released);
    };
    for _ in 0..1_000 {
        round().await;
    }
    let before = resident();
    for _ in 0..10_000 {
        round().await;
    }
    let grown = resident().saturating_sub(before);
    println!("10,000 timeouts and 10,000 hand-overs: {grown} bytes more");
    assert!(grown < 1 << 20, "{grown} bytes more");
    assert_eq!(server.watches() + a.pending_cleanups() + b.pending_cleanups(), 0);
}
