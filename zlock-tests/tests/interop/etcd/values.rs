//! Other programs that read and write the same values.

use zlock_recipes::{Client, CounterFormat};
use zlock_testkit::etcd::{backend, observer};
use zlock_testkit::limit;

#[tokio::test]
async fn other_programs_read_and_write_what_is_there() {
    let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
    limit(async {
        let observer = observer(&server.connect_string()).await;
        let client = Client::new(backend(&server.connect_string()).await);
        let counter = client.counter("/raw/counter").unwrap().with_format(CounterFormat::Text);
        assert_eq!(counter.add(41).await.unwrap(), 41);
        let mut kv = observer.kv_client();
        let read = kv.get("/raw/counter", None).await.unwrap();
        assert_eq!((read.kvs()[0].value(), read.kvs()[0].lease()), (&b"41"[..], 0));
        kv.put("/raw/counter", "100", None).await.unwrap();
        assert_eq!(counter.add(1).await.unwrap(), 101);
    })
    .await;
}
