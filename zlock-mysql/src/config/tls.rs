//! TLS by rustls. The certificates are read when a connection is made.

use mysql_async::{ClientIdentity, SslOpts};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use zlock_core::TextOrFile;

use super::{MysqlOptions, Verify};

impl MysqlOptions {
    /// Returns the library's options for TLS. Reads the files.
    pub(crate) async fn tls(&self) -> Result<Option<SslOpts>, String> {
        let Some(tls) = self.kit.tls.clone() else { return Ok(None) };
        // The library uses that of the process. Where several are linked, there is none until somebody chooses.
        if CryptoProvider::get_default().is_none() {
            // Fails if another one was chosen just now.
            let _ = ring::default_provider().install_default();
        }
        let verify = self.verify;
        let read = move || {
            let mut opts = SslOpts::default().with_disable_built_in_roots(true);
            if verify == Verify::Nothing {
                opts = opts.with_danger_accept_invalid_certs(true);
            } else {
                let authorities = pem(tls.authorities()?, "the TLS authorities")?;
                opts = opts.with_root_certs(vec![authorities.into()]);
            }
            opts = opts.with_danger_skip_domain_validation(verify != Verify::Full);
            if let Some((certificate, key)) = &tls.identity {
                let identity = ClientIdentity::new(
                    pem(certificate, "the TLS certificate")?.into(),
                    pem(key, "the TLS key")?.into(),
                );
                opts = opts.with_client_identity(Some(identity));
            }
            Ok(opts)
        };
        self.kit.files.read(read).await.map(Some)
    }
}

fn pem(text: &TextOrFile, what: &str) -> Result<Vec<u8>, String> {
    let pem = text.read()?;
    if pem.contains("-----BEGIN ") {
        Ok(pem.into_bytes())
    } else {
        Err(text.describe(what) + ": not in PEM format")
    }
}
