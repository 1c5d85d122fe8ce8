//! Connecting by URL.

use std::fmt;
use std::sync::Arc;

use zlock_core::{
    ConnectUrl, Connector, CoordinationBackend, Environment, Error, ErrorKind, Excerpt, Result,
};
use zlock_recipes::Client;

use crate::register::{BUILT_IN, REGISTERED};

/// Connects to the store in the URL, with the settings in the URL and defaults for all others. The short form of
/// [`Connect`], for a client that needs no credentials and waits for its store.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `mem://` | a server inside this process, for this client only | `mem` |
/// | `mem://NAME` | a server inside this process, shared by all clients that connect to this name, until the last of them is dropped | `mem` |
/// | `zk://h1:2181,h2:2181/chroot` | ZooKeeper | `zk` |
/// | `etcd://h1:2379,h2:2379/prefix` | etcd | `etcd` |
/// | `postgres://user:password@h1,h2/database` | PostgreSQL; also `postgresql://` | `postgres` |
/// | `mysql://user:password@h1,h2/database` | MySQL and MariaDB; also `mariadb://` | `mysql` |
/// | `zk+srv://domain/chroot` | ZooKeeper, on the servers in the domain's SRV records | `zk` and `srv` |
/// | `etcd+srv://domain/prefix` | etcd, on the servers in the domain's SRV records | `etcd` and `srv` |
///
/// [`register`](crate::register()) adds the schemes of other crates' stores.
///
/// All of those in the table accept `?session_timeout=10s`: how long the store keeps the locks of a client that it no longer
/// hears from. It defaults to 10 s. The minimum is 100 ms on mem and ZooKeeper, although ZooKeeper's servers grant at least 4 s by
/// default. On etcd the timeout is a whole number of seconds, at least 2. On PostgreSQL, MySQL and MariaDB it is at least 1 s, and at most
/// what the database allows, 30 s by default. See `zlock::zk::ZkOptions`, `zlock::etcd::EtcdOptions`, `zlock::postgres::PostgresOptions` and
/// `zlock::mysql::MysqlOptions` for other parameters.
///
/// # Errors
/// Those of [`Connect::connect`].
///
/// # Cancel safety
/// This function is cancel safe: if the future is dropped, the connection is closed.
///
/// # Panics
/// Panics outside a tokio runtime with time and I/O enabled, except for `mem://`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # if cfg!(not(feature = "mem")) { return Ok(()); }
/// let client = zlock::connect("mem://").await?;
/// client.mutex("/app/orders/42")?.acquire().await?.release().await?;
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    Connect::to(url).connect().await
}

/// A connection that is about to be made: to which store, and with which credentials.
///
/// [`connect`](Self::connect) waits for the store, [`connect_lazy`](Self::connect_lazy) does not. [`blocking`](Self::blocking)
/// makes a blocking client. For all other settings, create the backend from its options and pass it to [`Client::new`] or
/// [`Client::builder`].
///
/// # Examples
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// use zlock::Connect;
///
/// // ZLOCK_URL=etcd+srv://example.com/production?session_timeout=10s
/// // ZLOCK_USER=orders
/// // ZLOCK_PASSWORD_FILE=/run/secrets/zlock
/// // ZLOCK_CA_FILE=/etc/zlock/ca.pem
/// let client = Connect::from_env()?.connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing is done until it connects"]
pub struct Connect {
    url: String,
    environment: Environment,
}

impl Connect {
    /// Selects the store in the URL. The function [`connect`](crate::connect()) lists the URLs. Performs no I/O, and does not
    /// check the URL yet.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # if cfg!(not(feature = "mem")) { return Ok(()); }
    /// let client = zlock::Connect::to("mem://").connect_lazy()?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn to(url: impl Into<String>) -> Self {
        Connect { url: url.into(), environment: Environment::default() }
    }

    /// Selects the store in the environment variable `ZLOCK_URL`, with credentials and TLS by the other variables that
    /// [`Environment`] lists.
    ///
    /// # Errors
    /// Those of [`Environment::of_process`] and [`Environment::url`], with the name of the variable.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// // ZLOCK_URL=zk://zk1,zk2,zk3/production
    /// let client = zlock::Connect::from_env()?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self> {
        Connect::of(Environment::of_process()?)
    }

    fn of(environment: Environment) -> Result<Self> {
        Ok(Connect { url: environment.url()?.to_owned(), environment })
    }

    /// Sets the variables from which credentials and TLS are taken. Their `ZLOCK_URL` is not used. Defaults to none.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # if cfg!(not(feature = "mem")) { return Ok(()); }
    /// use zlock::{Connect, Environment};
    ///
    /// // The URL from the program's settings, the credentials from the environment.
    /// let environment = Environment::of_process()?;
    /// let client = Connect::to("mem://").with_environment(environment).connect().await?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets the client's name, which operators see beside what it holds and waits for: in `zlock who`, `jobs`, `top` and `record`, and on
    /// PostgreSQL also as `application_name`, unless the URL has one. It need not be unique, and nothing relies on it. Defaults to
    /// `ZLOCK_NAME` of the environment that is used, and without one to the host and the process ID.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if it is empty, longer than 200 bytes, or has control characters.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # if cfg!(not(feature = "mem")) { return Ok(()); }
    /// let client = zlock::Connect::to("mem://").with_name("orders-7")?.connect().await?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_name(mut self, name: impl Into<String>) -> Result<Self> {
        self.environment = self.environment.with_name(name)?;
        Ok(self)
    }

    /// Connects to the store, and returns once the session has begun.
    ///
    /// # Errors
    /// - [`InvalidUrl`](crate::ErrorKind::InvalidUrl), with the problem and its position. Nothing was sent.
    /// - [`FeatureDisabled`](crate::ErrorKind::FeatureDisabled), with the name of the cargo feature. Nothing was sent.
    /// - [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a variable that the store does not support, and for a file
    ///   that cannot be read, with its path. Nothing was sent.
    /// - Those of the backend's own `connect`.
    ///
    /// # Cancel safety
    /// This method is cancel safe: if the future is dropped, the connection is closed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled, except for `mem://`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # if cfg!(not(feature = "mem")) { return Ok(()); }
    /// let client = zlock::Connect::to("mem://").connect().await?;
    /// client.mutex("/app/orders/42")?.acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<Client> {
        let backend = Store::new(&self.url, &self.environment)?.connect().await?;
        client(backend, &self.environment)
    }

    /// Returns a client at once, and connects to the store in the background for as long as that takes.
    ///
    /// This allows a service to start before its store. Until the first session begins, the client behaves as if it had lost
    /// one: its session is [`Lost`](crate::SessionState::Lost), in epoch 0, and calls wait for the next session. After the
    /// backend's operation timeout, they fail with [`Unavailable`](crate::ErrorKind::Unavailable), and the error's cause is
    /// the reason why there is no session. `acquire_timeout` and `try_acquire` fail with
    /// [`Timeout`](crate::ErrorKind::Timeout) if their own time limit passes first. If the store rejects the credentials, all
    /// calls fail with [`NotAuthorized`](crate::ErrorKind::NotAuthorized).
    ///
    /// # Errors
    /// Those errors of [`connect`](Self::connect) that can be detected without a connection.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled, except for `mem://`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # if cfg!(not(feature = "mem")) { return Ok(()); }
    /// use std::time::Duration;
    ///
    /// let client = zlock::Connect::to("mem://").connect_lazy()?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// mutex.acquire_timeout(Duration::from_secs(2)).await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(self) -> Result<Client> {
        let backend = Store::new(&self.url, &self.environment)?.connect_lazy()?;
        client(backend, &self.environment)
    }

    /// Returns the same for a blocking client, whose session lives on a separate thread.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # if cfg!(not(feature = "mem")) { return Ok(()); }
    /// let client = zlock::Connect::to("mem://").blocking().connect()?;
    /// client.mutex("/app/orders/42")?.acquire()?.release()?;
    /// client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn blocking(self) -> crate::blocking::Connect {
        crate::blocking::Connect::new(self)
    }
}

/// Shows no credentials.
impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = format_args!("{}", ConnectUrl::excerpt(&self.url));
        f.debug_struct("Connect").field("url", &url).field("environment", &self.environment).finish()
    }
}

/// A store that a URL names; nothing was sent to it yet.
enum Store {
    #[cfg(feature = "mem")]
    Mem(zlock_mem::MemServer, Box<zlock_mem::MemOptions>),
    #[cfg(feature = "zk")]
    Zk(Box<zlock_zk::ZkOptions>),
    #[cfg(feature = "etcd")]
    Etcd(Box<zlock_etcd::EtcdOptions>),
    #[cfg(feature = "postgres")]
    Postgres(Box<zlock_postgres::PostgresOptions>),
    #[cfg(feature = "mysql")]
    Mysql(Box<zlock_mysql::MysqlOptions>),
    Registered(Arc<dyn Connector>, Box<(ConnectUrl, Environment)>),
}

impl Store {
    fn new(url: &str, environment: &Environment) -> Result<Self> {
        // Its URLs have a syntax of their own, with users and passwords.
        if ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return postgres(url, environment);
        }
        if ["mysql://", "mariadb://"].iter().any(|scheme| url.starts_with(scheme)) {
            return mysql(url, environment);
        }
        let url = ConnectUrl::parse(url)?;
        match url.scheme() {
            "mem" => mem(&url, environment),
            "zk" | "zk+srv" if cfg!(not(feature = "zk")) => Err(disabled(&url.to_string(), "zk")),
            "etcd" | "etcd+srv" if cfg!(not(feature = "etcd")) => Err(disabled(&url.to_string(), "etcd")),
            "zk+srv" | "etcd+srv" if cfg!(not(feature = "srv")) => Err(disabled(&url.to_string(), "srv")),
            #[cfg(feature = "zk")]
            "zk" | "zk+srv" => {
                let options = zlock_zk::ZkOptions::from_connect_url(&url)?;
                Ok(Store::Zk(Box::new(options.with_environment(environment)?)))
            }
            #[cfg(feature = "etcd")]
            "etcd" | "etcd+srv" => {
                let options = zlock_etcd::EtcdOptions::from_connect_url(&url)?;
                Ok(Store::Etcd(Box::new(options.with_environment(environment)?)))
            }
            scheme => {
                let registered = REGISTERED.lock();
                if let Some(connector) = registered.get(scheme).cloned() {
                    return Ok(Store::Registered(connector, Box::new((url, environment.clone()))));
                }
                let known = BUILT_IN.into_iter().chain(registered.keys().map(String::as_str));
                let known: Vec<_> = known.map(|scheme| format!("{scheme}://")).collect();
                Err(url.refuse(format!("unknown scheme; use {}", known.join(", "))))
            }
        }
    }

    async fn connect(self) -> Result<Arc<dyn CoordinationBackend>> {
        Ok(match self {
            #[cfg(feature = "mem")]
            Store::Mem(server, options) => Arc::new(server.connect_with(*options)),
            #[cfg(feature = "zk")]
            Store::Zk(options) => Arc::new(zlock_zk::ZkBackend::connect(*options).await?),
            #[cfg(feature = "etcd")]
            Store::Etcd(options) => Arc::new(zlock_etcd::EtcdBackend::connect(*options).await?),
            #[cfg(feature = "postgres")]
            Store::Postgres(options) => Arc::new(zlock_postgres::PostgresBackend::connect(*options).await?),
            #[cfg(feature = "mysql")]
            Store::Mysql(options) => Arc::new(zlock_mysql::MysqlBackend::connect(*options).await?),
            Store::Registered(connector, settings) => connector.connect(&settings.0, &settings.1).await?,
        })
    }

    fn connect_lazy(self) -> Result<Arc<dyn CoordinationBackend>> {
        Ok(match self {
            #[cfg(feature = "mem")]
            Store::Mem(server, options) => Arc::new(server.connect_with(*options)),
            #[cfg(feature = "zk")]
            Store::Zk(options) => Arc::new(zlock_zk::ZkBackend::connect_lazy(*options)?),
            #[cfg(feature = "etcd")]
            Store::Etcd(options) => Arc::new(zlock_etcd::EtcdBackend::connect_lazy(*options)?),
            #[cfg(feature = "postgres")]
            Store::Postgres(options) => Arc::new(zlock_postgres::PostgresBackend::connect_lazy(*options)?),
            #[cfg(feature = "mysql")]
            Store::Mysql(options) => Arc::new(zlock_mysql::MysqlBackend::connect_lazy(*options)?),
            Store::Registered(connector, settings) => connector.connect_lazy(&settings.0, &settings.1)?,
        })
    }
}

/// Returns the client on this backend, with the name in the environment.
fn client(backend: Arc<dyn CoordinationBackend>, environment: &Environment) -> Result<Client> {
    let client = Client::builder(backend);
    Ok(match environment.name() {
        Some(name) => client.with_node_data(name)?.build(),
        None => client.build(),
    })
}

#[cfg(feature = "mem")]
fn mem(url: &ConnectUrl, environment: &Environment) -> Result<Store> {
    use std::time::Duration;
    use zlock_mem::{MemOptions, MemServer};

    /// With a shorter timeout, the session would be lost again and again because of scheduling delays.
    const MIN_SESSION_TIMEOUT: Duration = Duration::from_millis(100);

    let mut options = MemOptions::default();
    if let Some(timeout) = url.duration("session_timeout")? {
        if timeout < MIN_SESSION_TIMEOUT {
            let why = format!("the session timeout of {timeout:?} is below {MIN_SESSION_TIMEOUT:?}");
            return Err(url.refuse(why));
        }
        options = options.with_session_timeout(timeout);
    }
    url.refuse_params_but(&["session_timeout"])?;
    if url.path().is_some() {
        return Err(url.refuse("mem:// takes no path"));
    }
    let server = match url.hosts() {
        [] => MemServer::new(),
        [host] if host.port().is_none() => MemServer::named(host.name()),
        _ => return Err(url.refuse("mem:// takes one name without a port, or none")),
    };
    environment.refuse_credentials("mem")?;
    Ok(Store::Mem(server, Box::new(options)))
}

#[cfg(not(feature = "mem"))]
fn mem(url: &ConnectUrl, _: &Environment) -> Result<Store> {
    Err(disabled(&url.to_string(), "mem"))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, environment: &Environment) -> Result<Store> {
    let options = zlock_postgres::PostgresOptions::from_url(url)?.with_environment(environment)?;
    Ok(Store::Postgres(Box::new(options)))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str, _: &Environment) -> Result<Store> {
    // The rest may be a password.
    Err(disabled("postgres://", "postgres"))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str, environment: &Environment) -> Result<Store> {
    let options = zlock_mysql::MysqlOptions::from_url(url)?.with_environment(environment)?;
    Ok(Store::Mysql(Box::new(options)))
}

#[cfg(not(feature = "mysql"))]
fn mysql(_: &str, _: &Environment) -> Result<Store> {
    // The rest may be a password.
    Err(disabled("mysql://", "mysql"))
}

fn disabled(url: &str, feature: &str) -> Error {
    let message = format!("enable the feature {feature:?} of the crate zlock");
    Error::new(ErrorKind::FeatureDisabled, "connect").with_path(Excerpt::of(url)).with_message(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refuses_and_says_why() {
        for (url, part) in [("mem", "no scheme"), ("redis://h", "unknown scheme; use mem://, zk://, etcd://")]
        {
            let e = connect(url).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(e.to_string().contains(part), "{url}: {e}");
        }
    }

    #[cfg(feature = "mem")]
    #[tokio::test]
    async fn mem_takes_a_name_and_nothing_else() {
        for (url, part) in [
            ("mem://a:1", "one name without a port"),
            ("mem://a,b", "one name without a port"),
            ("mem://a/b", "takes no path"),
            ("mem://a?b=1", "mem:// takes session_timeout"),
            ("mem://a?session_timeout=4", "session_timeout=4"),
            ("mem://a?session_timeout=1ms", "session timeout of 1ms is below 100ms"),
        ] {
            let e = connect(url).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(e.to_string().contains(part), "{url}: {e}");
        }
    }

    /// Two clients may have one name.
    #[cfg(feature = "mem")]
    #[tokio::test(start_paused = true)]
    async fn others_see_the_name_of_a_client() {
        let variables = |name: &str| (name == "ZLOCK_NAME").then(|| "from the environment".into());
        let environment = Environment::read(variables).unwrap();
        let named = || Connect::to("mem://named").with_environment(environment.clone());
        let one = named().connect().await.unwrap();
        let two = named().with_name("orders-7").unwrap().connect().await.unwrap();
        let three = named().with_name("orders-7").unwrap().connect_lazy().unwrap();
        let mut held = Vec::new();
        for client in [&one, &two, &three] {
            held.push(client.semaphore("/a", 3).unwrap().acquire(1).await.unwrap());
        }
        let participants = one.semaphore("/a", 3).unwrap().participants().await.unwrap();
        let names: Vec<_> = participants.iter().map(|one| String::from_utf8_lossy(&one.data)).collect();
        assert_eq!(names, ["from the environment", "orders-7", "orders-7"]);
        for (name, why) in [("", "is empty"), (&*"x".repeat(201), "201 bytes"), ("a\nb", "control")] {
            let error = named().with_name(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[cfg(feature = "mem")]
    #[tokio::test(start_paused = true)]
    async fn a_lazy_client_is_one_that_works() {
        for url in ["mem", "mem://a:1", "redis://h"] {
            assert_eq!(Connect::to(url).connect_lazy().unwrap_err().kind(), ErrorKind::InvalidUrl, "{url}");
        }
        let lazy = Connect::to("mem://lazy");
        let (client, other) = (lazy.clone().connect_lazy().unwrap(), lazy.connect().await.unwrap());
        let guard = client.mutex("/a").unwrap().acquire().await.unwrap();
        assert!(other.mutex("/a").unwrap().try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }

    /// Without any server, the client is created, and options that cannot work are rejected.
    #[cfg(any(feature = "zk", feature = "etcd", feature = "postgres"))]
    #[tokio::test]
    async fn a_lazy_client_needs_no_server() {
        use std::time::Duration;
        use zlock_core::{Phase, SessionState};

        for (scheme, on) in [
            ("zk", cfg!(feature = "zk")),
            ("etcd", cfg!(feature = "etcd")),
            ("postgres", cfg!(feature = "postgres")),
        ] {
            if !on {
                continue;
            }
            let bad = Connect::to(format!("{scheme}://127.0.0.1:1?session_timeout=1us")).connect_lazy();
            let bad = bad.unwrap_err();
            assert_eq!(bad.kind(), ErrorKind::InvalidUrl, "{bad}");
            let client = Connect::to(format!("{scheme}://127.0.0.1:1/app")).connect_lazy().unwrap();
            let session = client.session_events().current();
            assert_eq!((session.epoch, session.state), (0, SessionState::Lost));
            let mutex = client.mutex("/a").unwrap();
            let error = mutex.acquire_timeout(Duration::from_millis(100)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
            assert_eq!(client.close().await.unwrap(), zlock_core::Close::Ended);
        }
    }

    #[cfg(any(feature = "mem", feature = "zk"))]
    fn store(variables: &[(&str, &str)]) -> Result<Store> {
        let environment = Environment::read(|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
        })?;
        let Connect { url, environment } = Connect::of(environment)?;
        Store::new(&url, &environment)
    }

    #[test]
    fn the_password_in_a_url_is_not_shown() {
        for url in [
            "postgres://me:SECRET@h?x=1",
            "postgresql://me:SECRET@h/db?listen=SECRET",
            "Postgres://me:SECRET@h",
            "mysql://me:SECRET@h?x=1",
            "mariadb://me:SECRET@h/db?x=SECRET",
            "MySQL://me:SECRET@h/db",
        ] {
            let error = Connect::to(url).connect_lazy().map(|_| ()).unwrap_err();
            let shown = format!("{error} {error:?} {:?}", Connect::to(url));
            assert!(!shown.contains("me:SECRET"), "{url}: {shown}");
        }
    }

    #[test]
    fn no_credentials_are_shown() {
        let shown = format!("{:?}", Connect::to("zk://me:SECRET@h"));
        assert!(shown.contains("zk://***") && !shown.contains("SECRET"), "{shown}");
    }

    #[cfg(feature = "mem")]
    #[tokio::test]
    async fn an_environment_is_a_store() {
        let client = store(&[("ZLOCK_URL", "mem://environment")]).unwrap().connect().await.unwrap();
        let client = Client::builder(client).build();
        client.mutex("/a").unwrap().acquire().await.unwrap().release().await.unwrap();
        let user = [("ZLOCK_URL", "mem://"), ("ZLOCK_USER", "me"), ("ZLOCK_PASSWORD", "SECRET")];
        let error = store(&user).err().unwrap();
        let text = "connect ZLOCK_USER: invalid argument: is set, and mem:// takes none";
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::InvalidArgument, text));
        let missing = store(&[]).err().unwrap();
        assert!(missing.to_string().contains("ZLOCK_URL"), "{missing}");
    }

    #[cfg(feature = "zk")]
    #[test]
    fn tls_and_sasl_need_their_features() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, "x").unwrap();
        let url = ("ZLOCK_URL", "zk://h");
        let tls = store(&[url, ("ZLOCK_CA_FILE", ca.to_str().unwrap())]);
        let sasl = store(&[url, ("ZLOCK_USER", "u"), ("ZLOCK_PASSWORD", "p"), ("ZLOCK_AUTH", "sasl")]);
        for (store, on, feature) in
            [(tls, cfg!(feature = "zk-tls"), "zk-tls"), (sasl, cfg!(feature = "zk-sasl"), "zk-sasl")]
        {
            match store {
                Ok(_) => assert!(on, "{feature}"),
                Err(error) => {
                    assert_eq!((error.kind(), on), (ErrorKind::FeatureDisabled, false), "{error}");
                    assert!(error.to_string().contains(feature), "{error}");
                }
            }
        }
    }

    /// The parameter that all URLs accept. Those of ZooKeeper and etcd are tested with their options.
    #[cfg(feature = "mem")]
    #[tokio::test(start_paused = true)]
    async fn mem_takes_a_session_timeout() {
        use std::time::Duration;

        for (url, seconds) in
            [("mem://", 10), ("mem://?session_timeout=2m", 120), ("mem://timed?session_timeout=4s", 4)]
        {
            let session = connect(url).await.unwrap().session_events().current();
            // Minus the margin of a quarter.
            let life = session.deadline.unwrap() - tokio::time::Instant::now();
            assert_eq!(life, Duration::from_secs(seconds) * 3 / 4, "{url}");
        }
    }

    #[cfg(feature = "mem")]
    #[tokio::test(start_paused = true)]
    async fn only_a_name_is_shared() {
        let mut guards = Vec::new();
        for url in ["mem://", "mem://only_a_name", "mem://only_a_name", "mem://another", "mem://"] {
            let mutex = connect(url).await.unwrap().mutex("/a").unwrap();
            guards.push(mutex.try_acquire().await.unwrap());
        }
        let free: Vec<_> = guards.iter().map(Option::is_some).collect();
        assert_eq!(free, [true, true, false, true, true]);
    }

    #[tokio::test]
    async fn a_feature_that_is_off_is_named() {
        let off = [
            ("mem://", cfg!(feature = "mem"), "\"mem\""),
            ("zk://h", cfg!(feature = "zk"), "\"zk\""),
            (
                "zk+srv://h",
                cfg!(all(feature = "zk", feature = "srv")),
                if cfg!(feature = "zk") { "\"srv\"" } else { "\"zk\"" },
            ),
            ("etcd://h", cfg!(feature = "etcd"), "\"etcd\""),
        ];
        for (url, _, feature) in off.into_iter().filter(|(_, on, _)| !on) {
            let e = connect(url).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::FeatureDisabled, "{url}");
            assert!(e.to_string().contains(feature), "{url}: {e}");
        }
    }
}
