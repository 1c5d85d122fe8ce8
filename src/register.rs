//! The schemes of URLs.

use std::collections::BTreeMap;
use std::sync::Arc;

use zlock_core::{ConnectUrl, Connector, Error, ErrorKind, Excerpt, Mutex, Result};

/// The schemes of this version, whether their features are on or off.
pub(crate) const BUILT_IN: [&str; 9] =
    ["mem", "zk", "etcd", "postgres", "postgresql", "mysql", "mariadb", "zk+srv", "etcd+srv"];

/// The schemes of other crates' stores.
pub(crate) static REGISTERED: Mutex<BTreeMap<String, Arc<dyn Connector>>> = Mutex::new(BTreeMap::new());

/// Registers a scheme of URLs for a store of another crate, for the rest of the process. From then on, [`connect`](crate::connect()),
/// [`Connect`](crate::Connect) and their blocking versions accept its URLs, with the syntax of [`ConnectUrl`](crate::backend::ConnectUrl).
/// Letter case does not matter.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), with the scheme, if it is registered already or one of zlock's own,
/// even one whose feature is off, or if no URL can have it: a scheme is a letter, and then letters, digits and `+`.
///
/// # Examples
/// ```
/// # #[cfg(not(feature = "mem"))] fn main() {}
/// # #[cfg(feature = "mem")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// use std::sync::Arc;
///
/// use zlock::mem::MemServer;
/// use zlock_core::{ConnectUrl, Connector, CoordinationBackend, Environment, Result, async_trait};
///
/// /// A store's own crate has this. It depends on `zlock-core` only.
/// struct Mine;
///
/// #[async_trait]
/// impl Connector for Mine {
///     async fn connect(
///         &self,
///         url: &ConnectUrl,
///         environment: &Environment,
///     ) -> Result<Arc<dyn CoordinationBackend>> {
///         // This store is there at once. Others wait for their session here.
///         self.connect_lazy(url, environment)
///     }
///
///     fn connect_lazy(
///         &self,
///         url: &ConnectUrl,
///         environment: &Environment,
///     ) -> Result<Arc<dyn CoordinationBackend>> {
///         url.refuse_params_but(&[])?;
///         environment.refuse_credentials(url.scheme())?;
///         Ok(Arc::new(MemServer::named("mine").connect()))
///     }
/// }
///
/// zlock::register("mine", Mine)?;
/// let client = zlock::connect("mine://host/app").await?;
/// client.mutex("/orders/42")?.acquire().await?.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn register(scheme: &str, connector: impl Connector) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::new(ErrorKind::InvalidArgument, "register")
            .with_path(Excerpt::of(scheme))
            .with_message(why))
    };
    let name = scheme.to_ascii_lowercase();
    if !ConnectUrl::parse(&format!("{name}://")).is_ok_and(|url| url.scheme() == name) {
        return refuse("is not a scheme: expected a letter, and then letters, digits and '+'");
    }
    if BUILT_IN.contains(&&*name) {
        return refuse("is a scheme of zlock's own");
    }
    let mut registered = REGISTERED.lock();
    if registered.contains_key(&name) {
        return refuse("is registered already");
    }
    registered.insert(name, Arc::new(connector));
    Ok(())
}
