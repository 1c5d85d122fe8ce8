//! A client process, with one session and some workers.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::backend::CoordinationBackend;
use zlock::etcd::{EtcdBackend, EtcdOptions};
use zlock::mysql::{MysqlBackend, MysqlOptions};
use zlock::postgres::{PostgresBackend, PostgresOptions};
use zlock::zk::{ZkBackend, ZkOptions};
use zlock::{Client, Result};

use super::bursts;
use super::locks::Manner;
use super::record::Record;
use super::storage::Visitor;
use super::told::{Told, crowd_file, socket, stop_file};
use super::waits;
use super::worker::Worker;
use crate::history::What;

/// The number of workers in a busy process. They share its session.
const WORKERS: u32 = 2;

/// The number of tasks of each process in a crowd.
const CROWD: u32 = 25;

/// Runs the process.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let told = Told::parse(args).expect("URL NAME FOLDER SEED MANNER SESSION_MS");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(live(told));
    ExitCode::SUCCESS
}

async fn live(told: Told) {
    let record = Arc::new(Record::create(&told.history()).expect("a history"));
    // The cluster may be down.
    let client = loop {
        match connect(&told.url).await {
            Ok(client) => break client,
            Err(error) if error.is_retryable() => sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let session = tokio::spawn(watch_session(client.clone(), record.clone()));
    let mut workers = JoinSet::new();
    let count = if told.manner == Manner::Busy { WORKERS } else { 1 };
    for number in 0..count {
        let storage = Visitor::connect(&socket(&told.folder)).await.expect("the storage");
        workers.spawn(Worker::new(number, &told, client.clone(), record.clone(), storage).run());
    }
    if told.manner == Manner::Quiet {
        workers.spawn(waits::run(client.clone(), told.name.clone(), told.folder.clone()));
    }
    workers.spawn(crowds(told.clone(), client.clone(), record.clone()));
    if told.manner == Manner::Busy && told.url.starts_with("etcd://") {
        let (client, told, record) = (client.clone(), told.clone(), record.clone());
        let bursts = async move { bursts::run(client, &told.name, &told.folder, record).await };
        workers.spawn(async { bursts.await.expect("valid paths") });
    }
    while let Some(ended) = workers.join_next().await {
        ended.expect("a worker");
    }
    client.close().await.expect("the end of the session");
    // The end is the session's last event.
    session.await.expect("the session's watcher");
    record.write(What::Bye);
}

/// Makes a crowd at one lock each time that the crowd's file appears.
async fn crowds(told: Told, client: Client, record: Arc<Record>) {
    let told = Told { manner: Manner::Crowd, ..told };
    while !stop_file(&told.folder).exists() {
        if crowd_file(&told.folder).exists() {
            let mut crowd = JoinSet::new();
            for number in WORKERS..WORKERS + CROWD {
                let storage = Visitor::connect(&socket(&told.folder)).await.expect("the storage");
                let mut worker = Worker::new(number, &told, client.clone(), record.clone(), storage);
                crowd.spawn(async move { worker.once().await });
            }
            crowd.join_all().await;
            // One crowd for each file.
            while crowd_file(&told.folder).exists() {
                sleep(Duration::from_millis(100)).await;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Creates a client outside of any runtime. No behavior may depend on where that happens.
async fn connect(url: &str) -> Result<Client> {
    let backend: Arc<dyn CoordinationBackend> = if url.starts_with("etcd://") {
        Arc::new(EtcdBackend::connect(EtcdOptions::from_url(url)?).await?)
    } else if url.starts_with("postgres://") {
        Arc::new(PostgresBackend::connect(PostgresOptions::from_url(url)?).await?)
    } else if url.starts_with("mysql://") {
        Arc::new(MysqlBackend::connect(MysqlOptions::from_url(url)?).await?)
    } else {
        Arc::new(ZkBackend::connect(ZkOptions::from_url(url)?).await?)
    };
    Ok(std::thread::spawn(|| Client::new(backend)).join().expect("a thread"))
}

async fn watch_session(client: Client, record: Arc<Record>) {
    let mut listener = client.session_events().listen();
    while let Some(session) = listener.next().await {
        record.write(What::Session {
            epoch: session.epoch,
            session: session.id.get(),
            state: format!("{:?}", session.state),
            // A session at rest ends when the client notices.
            deadline: record.clock.number(session.deadline.unwrap_or_else(tokio::time::Instant::now)),
        });
    }
}
