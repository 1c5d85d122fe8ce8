//! TLS options, which are read when a session begins.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use zlock_core::TextOrFile;
use zookeeper_client::TlsOptions;

const NO_AUTHORITIES: &str = "TLS needs the authorities that sign the servers' certificates";

#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) ca_pem: Option<TextOrFile>,
    pub(crate) identity: Option<(TextOrFile, TextOrFile)>,
}

impl Tls {
    pub(crate) fn has_files(&self) -> bool {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca_pem.iter().chain(identity).any(|text| text.file().is_some())
    }

    /// Returns the options for the client library. The error names the invalid part, and shows no key.
    pub(crate) fn options(&self) -> Result<TlsOptions, String> {
        let ca_pem = self.ca_pem.as_ref().ok_or(NO_AUTHORITIES)?;
        let mut options = TlsOptions::new()
            .with_pem_ca(&ca_pem.read()?)
            .map_err(|e| format!("{}: {e}", ca_pem.describe("invalid TLS authorities")))?;
        if let Some((certificate, key)) = &self.identity {
            let what = [certificate.describe("invalid TLS certificate"), key.describe("or key")].join(" ");
            options = options
                .with_pem_identity(&certificate.read()?, &key.read()?)
                .map_err(|e| format!("{what}: {e}"))?;
        }
        Ok(options)
    }
}

/// Chooses a cryptography provider for the process unless one was chosen. If two are built in (etcd's client brings another),
/// rustls cannot choose, and the client library would panic.
pub(crate) fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread has chosen one meanwhile.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}
