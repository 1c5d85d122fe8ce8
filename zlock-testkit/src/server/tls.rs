//! Certificates of servers, created with Java's keytool or with openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

use zlock_suite::proxy::Port;

const PASSWORD: &str = "zlock-test";

/// The self-signed certificate of a server with TLS, for `localhost` and `127.0.0.1`.
#[derive(Debug)]
pub struct Tls {
    key_store: PathBuf,
    pem: String,
}

impl Tls {
    /// The certificate that a client must trust, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.pem
    }

    pub(super) fn make(folder: &Path) -> Self {
        let key_store = folder.join("server.p12");
        // An earlier one.
        let _ = std::fs::remove_file(&key_store);
        let run = |args: &str| {
            let mut keytool = Command::new("keytool");
            keytool.args(args.split(' ')).args(["-storetype", "PKCS12", "-storepass", PASSWORD]);
            let out =
                keytool.arg("-keystore").arg(&key_store).output().expect("keytool, which comes with Java");
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success(), "keytool {args}: {text}");
            text
        };
        run("-genkeypair -alias server -keyalg EC -groupname secp256r1 -dname CN=localhost -validity 3650 \
             -ext san=dns:localhost,ip:127.0.0.1");
        let pem = run("-exportcert -rfc -alias server");
        Tls { key_store, pem }
    }

    /// Lines of `zoo.cfg`. Clients show no certificate.
    pub(super) fn config(&self, port: &Port) -> String {
        format!(
            "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.keyStore.password={PASSWORD}\nssl.clientAuth=none\n",
            port.number(),
            self.key_store.display(),
        )
    }
}

/// Creates a self-signed certificate for `localhost` and `127.0.0.1`, and its key.
///
/// # Panics
/// If there is no `openssl`.
pub(super) fn make_certificate(certificate: &Path, key: &Path, common_name: &str) {
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650".split(' '));
    openssl.args(["-subj", &format!("/CN={common_name}")]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-out").arg(certificate).arg("-keyout").arg(key);
    let out = openssl.output().expect("openssl");
    assert!(out.status.success(), "openssl: {}", String::from_utf8_lossy(&out.stderr));
}
