//! TLS options, which are read when a connection is made.

use etcd_client::{Certificate, Identity, TlsOptions};
use zlock_core::TextOrFile;

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
        let is_pem = |text: &str| text.contains("-----BEGIN ");
        let ca_pem = self.ca_pem.as_ref().map(TextOrFile::read).transpose()?.unwrap_or_default();
        if !is_pem(&ca_pem) {
            return Err("the TLS authorities are not in PEM format".into());
        }
        let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(ca_pem));
        if let Some((certificate, key)) = &self.identity {
            let (certificate, key) = (certificate.read()?, key.read()?);
            if !is_pem(&certificate) || !is_pem(&key) {
                return Err("the TLS certificate or key is not in PEM format".into());
            }
            options = options.identity(Identity::from_pem(certificate, key));
        }
        Ok(options)
    }
}
