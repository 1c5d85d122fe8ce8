//! Stores: parses their URLs and connects to them.

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
mod lookup;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "zk")]
pub(crate) mod zk;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zlock::backend::{ConnectUrl, CoordinationBackend, NodeName};
use zlock::{Client, Environment, Error, LockPath, SessionEvents, SessionTerms};

use crate::args;
use crate::exit::Failure;
use crate::output::printable;

/// A store named by a URL. Performs no I/O until it is connected.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    #[cfg(feature = "zk")]
    Zk(Box<zlock::zk::ZkOptions>),
    #[cfg(feature = "etcd")]
    Etcd(Box<zlock::etcd::EtcdOptions>),
    #[cfg(feature = "postgres")]
    Postgres(Box<zlock::postgres::PostgresOptions>),
    #[cfg(feature = "mysql")]
    Mysql(Box<zlock::mysql::MysqlOptions>),
    /// The store's name, if it has one.
    #[cfg(feature = "mem")]
    Mem(Option<String>),
}

impl Target {
    pub(crate) fn of(args: &args::Store) -> Result<Self, Failure> {
        // As in the library, an empty variable counts as one that is not set.
        let url = args.url.as_deref().filter(|url| !url.is_empty()).ok_or_else(|| {
            Failure::failed("no store: use --url or set ZLOCK_URL, for example zk://zk1:2181,zk2:2181/app")
        })?;
        Target::parse(url)
    }

    /// Parses a URL. Credentials and TLS settings come from the environment.
    pub(crate) fn parse(url: &str) -> Result<Self, Failure> {
        if ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return postgres(url);
        }
        if ["mysql://", "mariadb://"].iter().any(|scheme| url.starts_with(scheme)) {
            return mysql(url);
        }
        let url = ConnectUrl::parse(url)?;
        let without = |feature: &str| Err(built_without(url.scheme(), feature));
        let store = url.scheme().trim_end_matches("+srv");
        match url.scheme() {
            "zk" | "zk+srv" if cfg!(not(feature = "zk")) => without(store),
            "etcd" | "etcd+srv" if cfg!(not(feature = "etcd")) => without(store),
            "mem" if cfg!(not(feature = "mem")) => without(store),
            "zk+srv" | "etcd+srv" if cfg!(not(feature = "srv")) => without("srv"),
            #[cfg(feature = "zk")]
            "zk" | "zk+srv" => {
                let options = zlock::zk::ZkOptions::from_connect_url(&url)?;
                Ok(Target::Zk(Box::new(options.with_environment(&Environment::of_process()?)?)))
            }
            #[cfg(feature = "etcd")]
            "etcd" | "etcd+srv" => {
                let options = zlock::etcd::EtcdOptions::from_connect_url(&url)?;
                Ok(Target::Etcd(Box::new(options.with_environment(&Environment::of_process()?)?)))
            }
            #[cfg(feature = "mem")]
            "mem" => {
                let target = mem(&url)?;
                Environment::of_process()?.refuse_credentials("mem")?;
                Ok(target)
            }
            "file" => Err(url.refuse("only zlock run locks files").into()),
            _ => Err(url.refuse("unknown scheme: expected zk, etcd, postgres or mysql").into()),
        }
    }

    /// Rejects an unnamed in-memory store, which no other process can see.
    pub(crate) fn refuse_private(&self) -> Result<(), Failure> {
        match self {
            #[cfg(feature = "mem")]
            Target::Mem(None) => Err(Failure::failed(
                "mem:// locks nothing outside this process: use zk://, etcd://, postgres:// or mysql://, or mem://NAME to try the command",
            )),
            _ => Ok(()),
        }
    }

    /// Returns `true` unless the store is inside this process.
    pub(crate) fn has_server(&self) -> bool {
        match self {
            #[cfg(feature = "mem")]
            Target::Mem(_) => false,
            #[cfg(any(feature = "zk", feature = "etcd", feature = "mysql", feature = "postgres"))]
            _ => true,
        }
    }

    /// Returns `true` if a server may refuse a session because of the client's options.
    pub(crate) fn checks_more(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => true,
            #[cfg(any(feature = "zk", feature = "etcd", feature = "mysql", feature = "mem"))]
            _ => false,
        }
    }

    /// Limits the time to connect. The error then says what is wrong with each server.
    pub(crate) fn within(self, limit: Duration) -> Self {
        match self {
            #[cfg(feature = "zk")]
            Target::Zk(options) => {
                let limit = options.connect_timeout().min(limit);
                Target::Zk(Box::new(options.with_connect_timeout(limit)))
            }
            #[cfg(feature = "etcd")]
            Target::Etcd(options) => {
                let limit = options.connect_timeout().min(limit);
                Target::Etcd(Box::new(options.with_connect_timeout(limit)))
            }
            #[cfg(feature = "postgres")]
            Target::Postgres(options) => {
                let limit = options.connect_timeout().min(limit);
                Target::Postgres(Box::new(options.with_connect_timeout(limit)))
            }
            #[cfg(feature = "mysql")]
            Target::Mysql(options) => {
                let limit = options.connect_timeout().min(limit);
                Target::Mysql(Box::new(options.with_connect_timeout(limit)))
            }
            #[cfg(feature = "mem")]
            Target::Mem(name) => {
                let _ = limit;
                Target::Mem(name)
            }
        }
    }

    /// Connects and establishes a session. On a busy machine, it may have ended by now: then it establishes another one.
    pub(crate) async fn connect(&self) -> Result<Store, Error> {
        loop {
            if let Some(store) = self.try_connect().await? {
                return Ok(store);
            }
        }
    }

    /// Connects once. Returns `None` if the session has ended already.
    async fn try_connect(&self) -> Result<Option<Store>, Error> {
        Ok(match self {
            #[cfg(feature = "zk")]
            Target::Zk(options) => {
                let backend = zlock::zk::ZkBackend::connect((**options).clone()).await?;
                let terms = backend.session_terms();
                terms.map(|terms| Store { backend: Arc::new(backend), terms, target: self.clone() })
            }
            #[cfg(feature = "etcd")]
            Target::Etcd(options) => {
                let backend = zlock::etcd::EtcdBackend::connect((**options).clone()).await?;
                let terms = backend.session_terms();
                terms.map(|terms| Store { backend: Arc::new(backend), terms, target: self.clone() })
            }
            #[cfg(feature = "postgres")]
            Target::Postgres(options) => {
                let backend = zlock::postgres::PostgresBackend::connect((**options).clone()).await?;
                let terms = backend.session_terms();
                terms.map(|terms| Store { backend: Arc::new(backend), terms, target: self.clone() })
            }
            #[cfg(feature = "mysql")]
            Target::Mysql(options) => {
                let backend = zlock::mysql::MysqlBackend::connect((**options).clone()).await?;
                let terms = backend.session_terms();
                terms.map(|terms| Store { backend: Arc::new(backend), terms, target: self.clone() })
            }
            #[cfg(feature = "mem")]
            Target::Mem(name) => {
                use zlock::mem::{MemOptions, MemServer};

                let server = name.as_ref().map_or_else(MemServer::new, |name| MemServer::named(name));
                // Client and server share a clock: the margin covers delays in scheduling.
                let backend =
                    server.connect_with(MemOptions::default().with_margin(Duration::from_millis(200)));
                let terms = backend.session_terms();
                Some(Store { backend: Arc::new(backend), terms, target: self.clone() })
            }
        })
    }
}

fn built_without(scheme: &str, feature: &str) -> Failure {
    Failure::failed(format!(
        "{scheme}://: this zlock was built without {feature}: install it with --features {feature}"
    ))
}

/// Its URLs are those of its own clients.
#[cfg(feature = "mysql")]
fn mysql(url: &str) -> Result<Target, Failure> {
    let options = zlock::mysql::MysqlOptions::from_url(url)?.with_environment(&Environment::of_process()?)?;
    Ok(Target::Mysql(Box::new(options)))
}

#[cfg(not(feature = "mysql"))]
fn mysql(_: &str) -> Result<Target, Failure> {
    // The rest may be a password.
    Err(built_without("mysql", "mysql"))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Target, Failure> {
    let environment = Environment::of_process()?;
    let options = zlock::postgres::PostgresOptions::from_url(url)?.with_environment(&environment)?;
    Ok(Target::Postgres(Box::new(options)))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str) -> Result<Target, Failure> {
    // The rest may be a password.
    Err(built_without("postgres", "postgres"))
}

#[cfg(feature = "mem")]
fn mem(url: &ConnectUrl) -> Result<Target, Failure> {
    url.refuse_params_but(&[])?;
    match url.hosts() {
        [] if url.path().is_none() => Ok(Target::Mem(None)),
        [host] if url.path().is_none() && host.port().is_none() => {
            Ok(Target::Mem(Some(host.name().to_owned())))
        }
        _ => Err(url.refuse("expected mem://NAME without port and path").into()),
    }
}

/// A lock that has holders or waiters.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) path: LockPath,
    pub(crate) holders: usize,
    pub(crate) waiters: usize,
}

impl Row {
    #[cfg(any(feature = "zk", feature = "etcd", feature = "mysql", feature = "postgres"))]
    fn of(path: LockPath, queue: &zlock::backend::Queue) -> Self {
        let holders = zlock::backend::holders(queue).count();
        Row { path, holders, waiters: queue.len() - holders }
    }
}

/// Returns the path of the job whose record has this name in a folder.
#[cfg(any(feature = "zk", feature = "etcd"))]
fn job_of(folder: &str, name: &str) -> Option<LockPath> {
    let name = name.strip_suffix(".job").filter(|name| !name.is_empty())?;
    LockPath::new(format!("{folder}/{name}")).ok()
}

/// The number of some paths, with the first ones.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) total: usize,
    shown: Vec<String>,
}

impl Count {
    /// The number of paths to show.
    const SHOWN: usize = 5;

    pub(crate) fn add(&mut self, path: String) {
        self.total += 1;
        if self.shown.len() < Self::SHOWN {
            self.shown.push(path);
        }
    }

    /// Adds names below a path.
    #[cfg(feature = "etcd")]
    pub(crate) fn add_below(&mut self, path: &str, names: Count) {
        self.total += names.total;
        let free = Self::SHOWN.saturating_sub(self.shown.len());
        self.shown.extend(names.shown.iter().take(free).map(|name| format!("{path}/{name}")));
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.shown.iter().map(|path| printable(path.as_bytes())).collect();
        let more = if self.total > Self::SHOWN { ", .." } else { "" };
        write!(f, "{}: {}{more}", self.total, shown.join(", "))
    }
}

/// A connection to a store, with its own session.
pub(crate) struct Store {
    pub(crate) backend: Arc<dyn CoordinationBackend>,
    pub(crate) terms: SessionTerms,
    pub(crate) target: Target,
}

impl Store {
    /// Creates a client that stores this data in its nodes.
    pub(crate) fn client(&self, node_data: &str) -> Result<Client, Failure> {
        Ok(Client::builder(self.backend.clone()).with_node_data(node_data)?.build())
    }

    /// Calls `row` with each lock below a path that has holders or waiters. Creates nothing. Returns the paths that may not
    /// be read.
    pub(crate) async fn each_lock(
        &self,
        prefix: Option<&LockPath>,
        row: impl FnMut(Row) -> Result<(), Failure>,
    ) -> Result<Count, Failure> {
        match &self.target {
            #[cfg(feature = "zk")]
            Target::Zk(options) => zk::each_lock(options, prefix, row).await,
            #[cfg(feature = "etcd")]
            Target::Etcd(options) => etcd::each_lock(options, &self.backend, prefix, row).await,
            #[cfg(feature = "postgres")]
            Target::Postgres(options) => postgres::each_lock(options, &self.backend, prefix, row).await,
            #[cfg(feature = "mysql")]
            Target::Mysql(options) => mysql::each_lock(options, &self.backend, prefix, row).await,
            // No other client shares this process.
            #[cfg(feature = "mem")]
            Target::Mem(_) => {
                let _ = (prefix, row);
                Ok(Count::default())
            }
        }
    }

    /// Calls `found` with the path of each job below a path that seems to have a record. Returns the paths that may not be read.
    pub(crate) async fn each_job(
        &self,
        prefix: Option<&LockPath>,
        found: impl AsyncFnMut(LockPath) -> Result<(), Failure>,
    ) -> Result<Count, Failure> {
        match &self.target {
            #[cfg(feature = "zk")]
            Target::Zk(options) => zk::each_job(options, prefix, found).await,
            #[cfg(feature = "etcd")]
            Target::Etcd(options) => etcd::each_job(options, prefix, found).await,
            #[cfg(feature = "postgres")]
            Target::Postgres(options) => postgres::each_job(options, prefix, found).await,
            #[cfg(feature = "mysql")]
            Target::Mysql(options) => mysql::each_job(options, prefix, found).await,
            // No other client shares this process.
            #[cfg(feature = "mem")]
            Target::Mem(_) => {
                let _ = (prefix, found);
                Ok(Count::default())
            }
        }
    }

    pub(crate) fn session_events(&self) -> SessionEvents {
        self.backend.session_events()
    }

    /// Returns the full name of a lock's node on the server. On PostgreSQL, MySQL and MariaDB, that is what the fence takes.
    pub(crate) fn node(&self, path: &LockPath, node: &NodeName) -> String {
        match &self.target {
            #[cfg(feature = "zk")]
            Target::Zk(options) => options.node_path(path, node),
            #[cfg(feature = "etcd")]
            Target::Etcd(options) => options.node_key(path, node),
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => {
                let _ = path;
                node.to_string()
            }
            #[cfg(feature = "mysql")]
            Target::Mysql(_) => {
                let _ = path;
                node.to_string()
            }
            #[cfg(feature = "mem")]
            Target::Mem(_) => format!("{path}/{node}"),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("target", &self.target)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
