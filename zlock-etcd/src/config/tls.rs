//! TLS options, which are read when a connection is made.

use etcd_client::{Certificate, Identity, TlsOptions};
use zlock_core::TextOrFile;
use zlock_core::kit::Tls;

/// Returns the options for the client library. Refuses input that is not PEM. The error names the invalid part, and shows
/// no key. The library reads the certificates only when it connects.
pub(crate) fn options(tls: &Tls) -> Result<TlsOptions, String> {
    let authorities = Certificate::from_pem(read_pem(tls.authorities()?, "the TLS authorities")?);
    let mut options = TlsOptions::new().ca_certificate(authorities);
    if let Some((certificate, key)) = &tls.identity {
        let certificate = read_pem(certificate, "the TLS certificate")?;
        options = options.identity(Identity::from_pem(certificate, read_pem(key, "the TLS key")?));
    }
    Ok(options)
}

fn read_pem(text: &TextOrFile, what: &str) -> Result<String, String> {
    let pem = text.read()?;
    if pem.contains("-----BEGIN ") { Ok(pem) } else { Err(text.describe(what) + ": not in PEM format") }
}
