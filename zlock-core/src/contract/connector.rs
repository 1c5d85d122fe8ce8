//! How a store of another crate is reached by URL.

use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::backend::CoordinationBackend;
use crate::error::Result;
use crate::settings::environment::Environment;
use crate::settings::url::ConnectUrl;

/// Connects to the store that a URL names. `zlock::register` adds one for a scheme; its documentation has an example.
///
/// The URL was parsed, and nothing in it is checked yet but its syntax. A connector refuses what its store has no use for:
/// parameters with [`ConnectUrl::refuse_params_but`], hosts and paths with [`ConnectUrl::refuse`], and credentials with
/// [`Environment::refuse_credentials`]. Both methods refuse the same before they send anything.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// Connects, and returns once the session has begun.
    ///
    /// # Errors
    /// Those of the URL and the environment, and that no session could be begun within a limit of the store's own.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection is closed.
    async fn connect(
        &self,
        url: &ConnectUrl,
        environment: &Environment,
    ) -> Result<Arc<dyn CoordinationBackend>>;

    /// Returns the backend at once, and connects in the background for as long as that takes.
    ///
    /// # Errors
    /// Those of the URL and the environment.
    fn connect_lazy(
        &self,
        url: &ConnectUrl,
        environment: &Environment,
    ) -> Result<Arc<dyn CoordinationBackend>>;
}
