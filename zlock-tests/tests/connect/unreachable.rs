//! A connect that cannot succeed, on any store. The error states the reason for each host, and comes early where waiting does
//! not help.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use zlock_core::{Error, ErrorKind, Result};
use zlock_testkit::{Port, limit};

/// Far beyond the time limit of a test: a connect with this timeout that fails has not waited for it.
pub const HOUR: Duration = Duration::from_secs(3600);

/// Long enough to probe each host.
pub const SHORT: Duration = Duration::from_secs(3);

/// Its first label is too long for a name, so that no name server is asked: its answer may take longer than a test.
pub const NO_NAME: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.invalid:2181";

/// Checks the kind of the error of a connect that was refused.
pub fn refused<B: std::fmt::Debug>(connected: Result<B>) -> Error {
    let error = connected.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    eprintln!("{error}");
    error
}

pub fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// `connect` connects to these hosts, with this connect timeout.
pub async fn a_host_that_may_come_up<B: std::fmt::Debug>(
    connect: impl AsyncFn(String, Duration) -> Result<B>,
) {
    limit(async {
        let (port, silent) = (Port::reserve(), TcpListener::bind("127.0.0.1:0").unwrap());
        let silent = silent.local_addr().unwrap();
        let hosts = format!("{},{silent},{NO_NAME}", port.addr());
        assert_says(
            &refused(connect(hosts, SHORT).await),
            &[
                &format!("no session within {SHORT:?}: "),
                &format!("{}: connection refused", port.addr()),
                &format!("{silent}: accepts connections but does not respond"),
                &format!("{NO_NAME}: the name does not resolve"),
            ],
        );
    })
    .await;
}

pub async fn a_name_that_does_not_resolve<B: std::fmt::Debug>(
    connect: impl AsyncFn(String, Duration) -> Result<B>,
) {
    limit(async {
        // One failed lookup is not enough, since it may be temporary.
        let error = refused(connect(NO_NAME.to_owned(), SHORT).await);
        assert_says(&error, &["no session within", NO_NAME, "the name does not resolve"]);
        let error = refused(connect(NO_NAME.to_owned(), HOUR).await);
        assert_says(&error, &[NO_NAME, "the name does not resolve"]);
    })
    .await;
}

/// The host may be a server that the probe does not recognize.
pub async fn an_unknown_answer<B: std::fmt::Debug>(connect: impl AsyncFn(String, Duration) -> Result<B>) {
    limit(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ =
                    stream.read(&mut [0; 256]).and_then(|_| stream.write_all(b"a greeting of no known kind"));
            }
        });
        let error = refused(connect(host.to_string(), SHORT).await);
        assert_says(&error, &["no session within", &format!("{host}: sends an unknown response")]);
    })
    .await;
}
