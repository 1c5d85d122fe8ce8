//! A client with more tasks than etcd can serve in time.

use std::time::Duration;

use zlock_etcd::EtcdBackend;
use zlock_recipes::Client;
use zlock_suite::overload::{Ending, overload};
use zlock_testkit::etcd::options;
use zlock_testkit::{Etcd, have_etcd, limit_to_if};

async fn levels_off(tasks: usize, ending: Ending) {
    limit_to_if(Duration::from_secs(300), have_etcd(), async {
        let server = Etcd::start().await;
        let options = options(&server.connect_string()).with_ttl(Duration::from_secs(30));
        let client = Client::new(EtcdBackend::connect(options).await.unwrap());
        overload(&client, tasks, ending, 3000).await.check();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_200_tasks() {
    levels_off(200, Ending::Release).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_1000_tasks_that_drop_their_guards() {
    levels_off(1000, Ending::Drop).await;
}
