//! Connecting by URL.

use zlock_core::{ConnectUrl, Result};
use zlock_recipes::Client;

/// The schemes of this version, for the error of any other.
const KNOWN: &str = "known are mem://, zk:// and etcd://";

/// Connects to the store that the URL names, with the settings in the URL and defaults for all others.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `mem://` | a server inside this process, of this client alone | `mem` |
/// | `mem://NAME` | a server inside this process, shared by all that connect to this name; it lives as long as one of them does | `mem` |
/// | `zk://h1:2181,h2:2181/chroot` | ZooKeeper | `zk` |
/// | `etcd://h1:2379,h2:2379/prefix` | etcd | `etcd` |
///
/// All of them accept `?session_timeout=10s`: how long the store keeps the locks of a client that it no longer hears
/// from. It defaults to 10 s. The minimum is 100 ms on mem and ZooKeeper, whose servers grant at least 4 s by default.
/// On etcd it is 2 s, in whole seconds. The other parameters are those of `zlock::zk::ZkOptions` and
/// `zlock::etcd::EtcdOptions`.
///
/// For settings that a URL does not have, create the backend from its options and pass it to [`Client::new`] or
/// [`Client::builder`].
///
/// # Errors
/// - [`InvalidUrl`](crate::ErrorKind::InvalidUrl), with what is wrong and where; nothing was sent.
/// - [`FeatureDisabled`](crate::ErrorKind::FeatureDisabled), with the name of the cargo feature; nothing was sent.
/// - Those of the backend's own `connect`.
///
/// # Cancel safety
/// Safe: a connection that is not returned is closed.
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
    let url = ConnectUrl::parse(url)?;
    match url.scheme() {
        "mem" => mem(&url),
        "zk" => zk(&url).await,
        "etcd" => etcd(&url).await,
        _ => Err(url.refuse(format!("unknown scheme; {KNOWN}"))),
    }
}

#[cfg(feature = "mem")]
fn mem(url: &ConnectUrl) -> Result<Client> {
    use std::time::Duration;
    use zlock_mem::{MemOptions, MemServer};

    /// Below it real time is too coarse: the session would be lost again and again.
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
    Ok(Client::new(server.connect_with(options)))
}

#[cfg(feature = "zk")]
async fn zk(url: &ConnectUrl) -> Result<Client> {
    use zlock_zk::{ZkBackend, ZkOptions};

    Ok(Client::new(ZkBackend::connect(ZkOptions::from_connect_url(url)?).await?))
}

#[cfg(feature = "etcd")]
async fn etcd(url: &ConnectUrl) -> Result<Client> {
    use zlock_etcd::{EtcdBackend, EtcdOptions};

    Ok(Client::new(EtcdBackend::connect(EtcdOptions::from_connect_url(url)?).await?))
}

#[cfg(not(feature = "mem"))]
fn mem(url: &ConnectUrl) -> Result<Client> {
    Err(disabled(url, "mem"))
}

#[cfg(not(feature = "zk"))]
#[allow(clippy::unused_async, reason = "the same signature with and without the feature")]
async fn zk(url: &ConnectUrl) -> Result<Client> {
    Err(disabled(url, "zk"))
}

#[cfg(not(feature = "etcd"))]
#[allow(clippy::unused_async, reason = "the same signature with and without the feature")]
async fn etcd(url: &ConnectUrl) -> Result<Client> {
    Err(disabled(url, "etcd"))
}

#[cfg(not(all(feature = "mem", feature = "zk", feature = "etcd")))]
fn disabled(url: &ConnectUrl, feature: &str) -> zlock_core::Error {
    let message = format!("switch on the feature {feature:?} of the crate zlock");
    zlock_core::Error::new(zlock_core::ErrorKind::FeatureDisabled, "connect")
        .with_path(zlock_core::Excerpt::of(&url.to_string()))
        .with_message(message)
}

#[cfg(test)]
mod tests {
    use zlock_core::ErrorKind;

    use super::*;

    #[tokio::test]
    async fn refuses_and_says_why() {
        for (url, part) in
            [("mem", "no scheme"), ("redis://h", "unknown scheme; known are mem://, zk:// and etcd://")]
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

    /// The parameter that every URL understands; those of ZooKeeper and etcd are tested with their options.
    #[cfg(feature = "mem")]
    #[tokio::test(start_paused = true)]
    async fn mem_takes_a_session_timeout() {
        use std::time::Duration;

        for (url, seconds) in
            [("mem://", 10), ("mem://?session_timeout=2m", 120), ("mem://timed?session_timeout=4s", 4)]
        {
            let session = connect(url).await.unwrap().session_events().current();
            // Less the margin, a quarter.
            let life = session.deadline.unwrap() - tokio::time::Instant::now();
            assert_eq!(life, Duration::from_secs(seconds) * 3 / 4, "{url}");
        }
    }

    #[cfg(feature = "mem")]
    #[tokio::test(start_paused = true)]
    async fn only_a_name_is_shared() {
        use zlock_recipes::InterProcessMutex;

        let mut guards = Vec::new();
        for url in ["mem://", "mem://only_a_name", "mem://only_a_name", "mem://another", "mem://"] {
            let mutex = InterProcessMutex::new(&connect(url).await.unwrap(), "/a").unwrap();
            guards.push(mutex.try_acquire().await.unwrap());
        }
        let free: Vec<_> = guards.iter().map(Option::is_some).collect();
        assert_eq!(free, [true, true, false, true, true]);
    }

    #[cfg(not(all(feature = "mem", feature = "zk", feature = "etcd")))]
    #[tokio::test]
    async fn a_feature_that_is_off_is_named() {
        let off = [
            ("mem://", cfg!(feature = "mem"), "\"mem\""),
            ("zk://h", cfg!(feature = "zk"), "\"zk\""),
            ("etcd://h", cfg!(feature = "etcd"), "\"etcd\""),
        ];
        for (url, _, feature) in off.into_iter().filter(|(_, on, _)| !on) {
            let e = connect(url).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::FeatureDisabled, "{url}");
            assert!(e.to_string().contains(feature), "{url}: {e}");
        }
    }
}
