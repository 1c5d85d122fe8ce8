//! A client with more tasks than ZooKeeper can serve in time.

use std::time::Duration;

use zlock_recipes::Client;
use zlock_suite::overload::{Ending, overload};
use zlock_testkit::zk::options;
use zlock_testkit::{ZooKeeper, have_zookeeper, limit_to_if};
use zlock_zk::ZkBackend;

async fn levels_off(tasks: usize, ending: Ending) {
    limit_to_if(Duration::from_secs(300), have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let options = options(&server.connect_string()).with_session_timeout(Duration::from_secs(30));
        let client = Client::new(ZkBackend::connect(options).await.unwrap());
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
