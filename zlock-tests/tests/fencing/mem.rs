//! Writes under a lock of another store.

use zlock::mem::MemServer;
use zlock::{Client, ErrorKind};

#[tokio::test(start_paused = true)]
async fn a_lock_of_another_store_is_not_taken_for_lost() {
    let [here, there] = [(), ()].map(|()| Client::new(MemServer::new().connect()));
    let guard = here.mutex("/app/orders").unwrap().acquire().await.unwrap();
    let value = there.shared_value("/app/last-order").unwrap();
    let error = value.write_under(&guard, b"one").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeDeleted, "{error}");
    assert!(error.to_string().contains("does not exist in the store of the value"), "{error}");
    assert!(guard.is_held(), "{:?}", guard.check());
    assert_eq!(value.get().await.unwrap(), None);
}
