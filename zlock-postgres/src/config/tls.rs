//! TLS by rustls. The certificates are read when a connection is made.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use zlock_core::TextOrFile;
use zlock_core::kit::Tls;

use super::Verify;

/// Makes the TLS half of a connection.
#[derive(Clone)]
pub(crate) struct Connector(Arc<ClientConfig>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Connector {
    /// Reads the certificates. The error names the invalid part, and shows no key.
    pub(crate) fn new(tls: &Tls, verify: Verify) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let verifier = verifier(tls, verify, provider)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate, "invalid TLS certificate")?;
                let invalid =
                    |what: &dyn fmt::Display| format!("{}: {what}", key.describe("invalid TLS key"));
                let parsed = PrivateKeyDer::from_pem_slice(key.read()?.as_bytes());
                let parsed = parsed.map_err(|error| invalid(&error))?;
                builder.with_client_auth_cert(chain, parsed).map_err(|error| invalid(&error))?
            }
        };
        Ok(Connector(Arc::new(config)))
    }
}

fn certificates(pem: &TextOrFile, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = pem.read()?;
    let all = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(all) if all.is_empty() => Err(pem.describe(what) + ": not in PEM format"),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("{}: {error}", pem.describe(what))),
    }
}

fn verifier(
    tls: &Tls,
    verify: Verify,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    if verify == Verify::Nothing {
        return Ok(Arc::new(Lenient { authority: None, provider }));
    }
    let authorities = tls.authorities()?;
    let what = "invalid TLS authorities";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities, what)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", authorities.describe(what)))?;
    }
    let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let strict = strict.map_err(|error| format!("{}: {error}", authorities.describe(what)))?;
    match verify {
        Verify::Full => Ok(strict),
        _ => Ok(Arc::new(Lenient { authority: Some(strict), provider })),
    }
}

/// Does not compare a server's name with that in its certificate.
#[derive(Debug)]
struct Lenient {
    /// `None` takes any certificate.
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is compared last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = ForServer;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<ForServer, io::Error> {
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(ForServer(TlsConnector::from(self.0.clone()), name))
    }
}

pub(crate) struct ForServer(TlsConnector, ServerName<'static>);

impl TlsConnect<Socket> for ForServer {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(Stream(self.0.connect(self.1, socket).await?)) })
    }
}

pub(crate) struct Stream(RustlsStream<Socket>);

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use zlock_testkit::{PostgresServer, have_postgres, limit};

    use crate::PostgresOptions;

    async fn connects(options: &PostgresOptions) -> Result<(), String> {
        let config = options.library_config().await.unwrap();
        let connector = options.connector().await?.expect("TLS");
        match config.connect(connector).await {
            Ok((client, connection)) => {
                let connection = tokio::spawn(connection);
                client.simple_query("SELECT 1").await.map_err(|error| error.to_string())?;
                drop(client);
                connection.await.unwrap().map_err(|error| error.to_string())
            }
            Err(error) => Err(format!("{error:?}")),
        }
    }

    fn options(url: &str) -> PostgresOptions {
        PostgresOptions::from_url(url).unwrap()
    }

    #[tokio::test]
    async fn a_server_is_checked_as_the_mode_says() {
        if !have_postgres() {
            return;
        }
        limit(async {
            let server = PostgresServer::builder().tls().start().await;
            let other = PostgresServer::builder().tls().start().await;
            let file = |server: &PostgresServer| {
                let file = server.folder().join("root.crt");
                std::fs::write(&file, server.certificate()).unwrap();
                file.display().to_string()
            };
            let (root, wrong) = (file(&server), file(&other));
            let port = server.addr().port();
            let url = |host: &str, params: &str| format!("postgres://zlock@{host}:{port}/zlock?{params}");
            for params in [
                "sslmode=require".to_owned(),
                format!("sslmode=verify-ca&sslrootcert={root}"),
                format!("sslmode=verify-full&sslrootcert={root}"),
            ] {
                connects(&options(&url("127.0.0.1", &params))).await.unwrap_or_else(|why| panic!("{params}: {why}"));
            }
            // With authorities `require` checks them, as in libpq.
            for params in ["require", "verify-ca", "verify-full"] {
                let params = format!("sslmode={params}&sslrootcert={wrong}");
                let why = connects(&options(&url("127.0.0.1", &params))).await.unwrap_err();
                assert!(why.contains("UnknownIssuer") || why.contains("BadSignature"), "{params}: {why}");
            }
            // The certificate is not for this name.
            let named = |mode: &str| {
                options(&format!(
                    "postgres://zlock@other.test:{port}/zlock?hostaddr=127.0.0.1&sslmode={mode}&sslrootcert={root}"
                ))
            };
            connects(&named("verify-ca")).await.unwrap();
            let why = connects(&named("verify-full")).await.unwrap_err();
            assert!(why.contains("NotValidForName"), "{why}");
            let by_option = PostgresOptions::new([format!("127.0.0.1:{port}")])
                .with_user("zlock", None)
                .with_tls(server.certificate());
            connects(&by_option).await.unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_client_shows_its_certificate() {
        if !have_postgres() {
            return;
        }
        limit(async {
            let server = PostgresServer::builder().client_certificate().start().await;
            let (certificate, key) = server.client_certificate();
            let identity = format!("sslcert={}&sslkey={}", certificate.display(), key.display());
            let url = |params: &str| format!("{}?sslmode=require&{params}", server.url());
            connects(&options(&url(&identity))).await.unwrap();
            assert!(connects(&options(&url(""))).await.is_err());
        })
        .await;
    }

    #[tokio::test]
    async fn bad_certificates_are_named_and_no_key_is_shown() {
        let bad = |tls: PostgresOptions| async move { tls.connector().await.map(|_| ()).unwrap_err() };
        let options = || PostgresOptions::new(["h"]);
        let why = bad(options().with_tls("nothing")).await;
        assert_eq!(why, "invalid TLS authorities: not in PEM format");
        let missing = std::path::Path::new("/nonexistent/ca");
        assert!(bad(options().with_tls(missing)).await.starts_with("/nonexistent/ca: "));
        let pem = "-----BEGIN CERTIFICATE-----\nU0VDUkVU\n-----END CERTIFICATE-----\n";
        let why = bad(options().with_tls(pem)).await;
        assert!(why.starts_with("invalid TLS authorities: "), "{why}");
        let identity = options().with_unverified_tls().with_tls_identity(pem, "SECRET");
        let why = bad(identity).await;
        assert!(why.starts_with("invalid TLS key: ") && !why.contains("SECRET"), "{why}");
    }
}
