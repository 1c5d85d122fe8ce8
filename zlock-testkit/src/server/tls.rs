//! Certificates of servers, created with Java's keytool.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::port::Port;

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
