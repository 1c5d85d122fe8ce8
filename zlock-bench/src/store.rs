//! The store under test.

use std::sync::Arc;
use std::time::Duration;

use zlock::backend::{CoordinationBackend, NodeIds};
#[cfg(feature = "etcd")]
use zlock::etcd::{EtcdBackend, EtcdOptions};
use zlock::mem::MemServer;
#[cfg(feature = "mysql")]
use zlock::mysql::{MysqlBackend, MysqlOptions};
#[cfg(feature = "postgres")]
use zlock::postgres::{PostgresBackend, PostgresOptions};
use zlock::zk::{ZkBackend, ZkOptions};

/// The session timeout, as in the benchmarks of the peers.
const SECONDS: u64 = 30;

/// A store, with names that no earlier run has used.
pub(crate) struct Store {
    kind: Kind,
    run: String,
}

enum Kind {
    Zookeeper(String),
    #[cfg(feature = "etcd")]
    Etcd(String),
    #[cfg(feature = "postgres")]
    Postgres(String),
    #[cfg(feature = "mysql")]
    Mysql(String),
    Mem(MemServer),
}

/// Where a store counts requests.
pub(crate) enum Counters<'a> {
    /// The servers' own counters, over their client ports.
    Ports(Vec<&'a str>),
    /// The statistics of the database at this URL.
    #[cfg(feature = "postgres")]
    Database(&'a str),
}

impl Store {
    pub(crate) fn zookeeper() -> Self {
        let hosts = std::env::var("ZK_CONNECT").expect("ZK_CONNECT=host:port[,host:port..]");
        Self::new(Kind::Zookeeper(format!("zk://{hosts}?session_timeout={SECONDS}s")))
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn etcd() -> Self {
        let hosts = std::env::var("ETCD_ENDPOINTS").expect("ETCD_ENDPOINTS=host:port[,host:port..]");
        Self::new(Kind::Etcd(format!("etcd://{hosts}?ttl={SECONDS}s")))
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(url: &str) -> Self {
        let separator = if url.contains('?') { '&' } else { '?' };
        Self::new(Kind::Postgres(format!("{url}{separator}session_timeout={SECONDS}s")))
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn mysql() -> Self {
        let url = std::env::var("MYSQL_URL").expect("MYSQL_URL=mysql://user@host/database");
        let separator = if url.contains('?') { '&' } else { '?' };
        Self::new(Kind::Mysql(format!("{url}{separator}session_timeout={SECONDS}s&create_schema=true")))
    }

    pub(crate) fn mem() -> Self {
        Self::new(Kind::Mem(MemServer::new()))
    }

    fn new(kind: Kind) -> Self {
        Store { kind, run: NodeIds::random().next().to_string() }
    }

    /// Returns `zk`, `etcd`, `postgres`, `mysql` or `mem`.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Zookeeper(_) => "zk",
            #[cfg(feature = "etcd")]
            Kind::Etcd(_) => "etcd",
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => "postgres",
            #[cfg(feature = "mysql")]
            Kind::Mysql(_) => "mysql",
            Kind::Mem(_) => "mem",
        }
    }

    /// Connects with a new session.
    pub(crate) async fn connect(&self) -> Arc<dyn CoordinationBackend> {
        match &self.kind {
            Kind::Zookeeper(url) => {
                let options = ZkOptions::from_url(url).expect("ZK_CONNECT");
                Arc::new(ZkBackend::connect(options).await.expect("a connection to ZooKeeper"))
            }
            #[cfg(feature = "etcd")]
            Kind::Etcd(url) => {
                let options = EtcdOptions::from_url(url).expect("ETCD_ENDPOINTS");
                let options = options.with_batching(std::env::var_os("ETCD_NO_BATCHES").is_none());
                Arc::new(EtcdBackend::connect(options).await.expect("a connection to etcd"))
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres(url) => {
                let options = PostgresOptions::from_url(url).expect("POSTGRES_URL");
                Arc::new(PostgresBackend::connect(options).await.expect("a connection to PostgreSQL"))
            }
            #[cfg(feature = "mysql")]
            Kind::Mysql(url) => {
                let options = MysqlOptions::from_url(url).expect("MYSQL_URL");
                Arc::new(MysqlBackend::connect(options).await.expect("a connection to MySQL"))
            }
            Kind::Mem(server) => Arc::new(server.connect()),
        }
    }

    /// Connects with a new session. On `mem`, requests and responses take this long each.
    pub(crate) async fn connect_over(&self, latency: Duration) -> Arc<dyn CoordinationBackend> {
        if let Kind::Mem(server) = &self.kind {
            let backend = server.connect();
            backend.link().delay(latency, latency);
            return Arc::new(backend);
        }
        self.connect().await
    }

    /// Returns the timeout of the sessions.
    pub(crate) fn session_timeout(&self) -> Duration {
        Duration::from_secs(SECONDS)
    }

    /// Returns where the store counts requests.
    pub(crate) fn counters(&self) -> Option<Counters<'_>> {
        let url = match &self.kind {
            Kind::Zookeeper(url) => url,
            #[cfg(feature = "etcd")]
            Kind::Etcd(url) => url,
            #[cfg(feature = "postgres")]
            Kind::Postgres(url) => return Some(Counters::Database(url)),
            #[cfg(feature = "mysql")]
            Kind::Mysql(_) => return None,
            Kind::Mem(_) => return None,
        };
        let hosts = url.split("://").last().and_then(|rest| rest.split('?').next());
        Some(Counters::Ports(hosts.unwrap_or_default().split(',').collect()))
    }

    /// Returns the path for this workload in this run.
    pub(crate) fn path(&self, workload: &str) -> String {
        format!("/zlock-{}-{workload}", self.run)
    }
}
