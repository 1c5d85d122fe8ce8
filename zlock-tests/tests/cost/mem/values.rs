//! The cost of counters, by the server's own counters.

use zlock::mem::{MemServer, Operation};
use zlock::{Client, Counter};

use super::requests::counts;

const PATH: &str = "/app/counter";

fn counter(server: &MemServer) -> Counter {
    Client::new(server.connect()).counter(PATH).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_addition_is_one_request() {
    let server = MemServer::new();
    let (one, two) = (counter(&server), counter(&server));
    one.add(1).await.unwrap();
    server.reset_requests();
    for n in 2..=100 {
        assert_eq!(one.add(1).await.unwrap(), n);
    }
    assert_eq!(counts(&server), [(Operation::WriteValue, 99)]);
    two.get().await.unwrap();
    server.reset_requests();
    // Each finds a write of the other, and its second attempt succeeds.
    for n in 0..50 {
        assert_eq!(two.add(1).await.unwrap(), 101 + 2 * n);
        assert_eq!(one.add(1).await.unwrap(), 102 + 2 * n);
    }
    assert_eq!(counts(&server), [(Operation::WriteValue, 199)]);
}
