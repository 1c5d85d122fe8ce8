//! TLS options, which are read when a session begins.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use zlock_core::kit::Tls;
use zookeeper_client::TlsOptions;

/// Returns the options for the client library. The error names the invalid part, and shows no key.
pub(crate) fn options(tls: &Tls) -> Result<TlsOptions, String> {
    let authorities = tls.authorities()?;
    let mut options = TlsOptions::new()
        .with_pem_ca(&authorities.read()?)
        .map_err(|e| format!("{}: {e}", authorities.describe("invalid TLS authorities")))?;
    if let Some((certificate, key)) = &tls.identity {
        let what = [certificate.describe("invalid TLS certificate"), key.describe("or key")].join(" ");
        options = options
            .with_pem_identity(&certificate.read()?, &key.read()?)
            .map_err(|e| format!("{what}: {e}"))?;
    }
    Ok(options)
}

/// Chooses a cryptography provider for the process unless one was chosen. If two are built in (etcd's client brings another),
/// rustls cannot choose, and the client library would panic.
pub(crate) fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread has chosen one meanwhile.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}
