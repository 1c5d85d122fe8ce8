//! TLS options, kept as text until they are needed.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use zookeeper_client::TlsOptions;

#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) ca_pem: String,
    pub(crate) identity: Option<(String, String)>,
}

impl Tls {
    /// What the client library takes; the error says which part is bad, and shows no key.
    pub(crate) fn options(&self) -> Result<TlsOptions, String> {
        let mut options =
            TlsOptions::new().with_pem_ca(&self.ca_pem).map_err(|e| format!("the TLS authorities: {e}"))?;
        if let Some((certificate, key)) = &self.identity {
            options = options
                .with_pem_identity(certificate, key)
                .map_err(|e| format!("the TLS certificate or key: {e}"))?;
        }
        Ok(options)
    }
}

/// Chooses a cryptography provider for the process unless one was chosen: with two of them built in (etcd's client
/// brings another) rustls cannot, and the client library would panic.
pub(crate) fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // An error means that somebody chose one in the meantime.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}
