//! TLS options, which are read when a connection is made.

use etcd_client::{Certificate, Identity, TlsOptions};
use zlock_core::TextOrFile;

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

    /// Returns the options for the client library. Refuses input that is not PEM. The error names the invalid part, and shows
    /// no key. The library reads the certificates only when it connects.
    pub(crate) fn options(&self) -> Result<TlsOptions, String> {
        let ca_pem = self.ca_pem.as_ref().ok_or(NO_AUTHORITIES)?;
        let ca_certificate = Certificate::from_pem(read_pem(ca_pem, "the TLS authorities")?);
        let mut options = TlsOptions::new().ca_certificate(ca_certificate);
        if let Some((certificate, key)) = &self.identity {
            let certificate = read_pem(certificate, "the TLS certificate")?;
            options = options.identity(Identity::from_pem(certificate, read_pem(key, "the TLS key")?));
        }
        Ok(options)
    }
}

fn read_pem(text: &TextOrFile, what: &str) -> Result<String, String> {
    let pem = text.read()?;
    if pem.contains("-----BEGIN ") { Ok(pem) } else { Err(text.describe(what) + ": not in PEM format") }
}
