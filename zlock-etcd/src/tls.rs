//! TLS options, kept as text until they are needed.

use etcd_client::{Certificate, Identity, TlsOptions};

#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) ca_pem: String,
    pub(crate) identity: Option<(String, String)>,
}

impl Tls {
    /// What the client library takes. It reads the certificates only when it connects.
    pub(crate) fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new();
        if !self.ca_pem.is_empty() {
            options = options.ca_certificate(Certificate::from_pem(&self.ca_pem));
        }
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(Identity::from_pem(certificate, key));
        }
        options
    }

    /// Refuses what is no PEM at all; the error says which part is bad, and shows no key.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_pem = |text: &str| text.contains("-----BEGIN ");
        if !is_pem(&self.ca_pem) {
            return Err("the TLS authorities are no PEM".into());
        }
        match &self.identity {
            Some((certificate, key)) if !is_pem(certificate) || !is_pem(key) => {
                Err("the TLS certificate or key is no PEM".into())
            }
            _ => Ok(()),
        }
    }
}
