//! Tests of a blocking client that need its internals.

use zlock_core::ErrorKind;
use zlock_mem::MemServer;

use super::Client;

/// A forked child has the parent's memory, but none of its threads. Safe code cannot fork, so the test changes the process
/// ID that the client compares.
#[test]
fn a_forked_child_gets_errors_and_gives_nothing_back() {
    let server = MemServer::new();
    let client = {
        let server = server.clone();
        Client::new(async move { Ok(crate::Client::new(server.connect())) }).unwrap()
    };
    let mutex = client.mutex("/app/lock").unwrap();
    let guard = mutex.acquire().unwrap();
    let (parent, child) = (std::process::id(), std::process::id() + 1);
    client.as_async().inner().set_process(child);
    drop(guard);
    drop(mutex.clone());
    let names = server.names(mutex.path());
    assert_eq!((names.len(), client.pending_cleanups()), (1, 0), "the parent's lock is as it was");
    assert!(mutex.is_acquired_in_this_process(), "the hold stands");
    client.as_async().inner().set_process(parent);
    let forked = super::driver::may_block("acquire", child).unwrap_err();
    assert_eq!(forked.kind(), ErrorKind::BlockingRefused);
    assert!(forked.to_string().contains("forked"), "{forked}");
    // The child's drop released nothing.
    assert!(mutex.try_acquire().unwrap().is_none());
    client.close().unwrap();
}
