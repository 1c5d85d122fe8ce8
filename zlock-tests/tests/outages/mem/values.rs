//! Writes of values whose answers are lost.

use zlock::mem::{Fate, Fault, MemServer, Operation};
use zlock::{Client, CompareAndSet, ErrorKind, LockPath};

/// An outcome that is unknown because the session ended, too, is reported as unknown, unless the next session can tell.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_and_a_lost_session_are_ambiguous() {
    let server = MemServer::new();
    let backend = server.connect();
    let link = backend.link();
    let value = Client::new(backend).shared_value("/app/value").unwrap();
    server.on_request({
        let link = link.clone();
        move |_, arrival| {
            if arrival.operation != Operation::WriteValue {
                return Fate::Pass;
            }
            let (server_link, lost) = (link.clone(), Fate::LoseAnswer);
            tokio::spawn(async move { server_link.expire() });
            lost
        }
    });
    let write = tokio::spawn({
        let value = value.clone();
        async move { value.compare_and_set(None, b"one").await }
    });
    while server.names(&LockPath::new("/app").unwrap()).is_empty() {
        tokio::task::yield_now().await;
    }
    server.clear_faults();
    let error = write.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::SessionLost, true), "{error}");
    assert_eq!(value.get().await.unwrap().unwrap().data, b"one");
    // A request that was lost is repeated in the next session.
    server.inject(Fault::lose_request(Operation::WriteValue));
    let version = value.get().await.unwrap().unwrap().version;
    let (written, ()) = tokio::join!(value.compare_and_set(Some(version), b"two"), async { link.expire() });
    assert!(matches!(written.unwrap(), CompareAndSet::Written(_)));
}
