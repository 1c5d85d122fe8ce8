//! What zlock says when servers do not respond.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use zlock_testkit::{Flow, Port, ZooKeeper, have_zookeeper, limit, limit_if};

use crate::support::{Site, folder, outcome, written, zlock};

/// A time limit that is shorter than the connect timeout hides neither the server nor the cause.
#[tokio::test]
async fn a_server_that_is_not_there_is_named_within_the_time_limit() {
    limit(async {
        let port = Port::reserve();
        for scheme in ["zk", "etcd"] {
            let url = format!("{scheme}://{}", port.addr());
            let run = ["run", "--url", &url, "--wait", "3s", "a", "--", "true"];
            let (code, stdout, stderr) = outcome(&mut zlock(&run)).await;
            assert_eq!((code, &*stdout, stderr.lines().count()), (125, "", 1), "{stderr}");
            let cause = format!("{}: connection refused", port.addr());
            assert!(stderr.contains(&cause) && stderr.contains("within 3s"), "{stderr}");
        }
    })
    .await;
}

/// The kernel accepts connections for a server that is frozen, until its queue is full.
#[tokio::test]
async fn a_frozen_server_is_no_firewall() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        server.pause();
        let url = format!("zk://{}?connect_timeout=5s", server.addr());
        let (code, stdout, _) = outcome(&mut zlock(&["doctor", "--url", &url])).await;
        assert!(code == 1 && stdout.contains("accepts connections but does not respond"), "{stdout}");
        assert!(!stdout.contains("firewall") && stdout.contains("frozen"), "{stdout}");

        let addr = server.addr();
        let fill = move || {
            let connect = |_| TcpStream::connect_timeout(&addr, Duration::from_millis(500)).ok();
            (0..10_000).map_while(connect).collect::<Vec<_>>()
        };
        let _queue = tokio::task::spawn_blocking(fill).await.unwrap();
        let (code, stdout, _) = outcome(&mut zlock(&["doctor", "--url", &url])).await;
        assert!(code == 1 && stdout.contains("is the server frozen or overloaded"), "{stdout}");
        server.resume();
    })
    .await;
}

#[tokio::test]
async fn a_limit_of_connections_is_named() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().config("maxClientCnxns=1").start().await;
        let _only = TcpStream::connect(server.addr()).unwrap();
        let url = format!("zk://{}", server.addr());
        let run = ["run", "--url", &url, "--wait", "3s", "a", "--", "true"];
        let (code, _, stderr) = outcome(&mut zlock(&run)).await;
        assert!(code == 125 && stderr.contains("maxClientCnxns"), "{stderr}");
    })
    .await;
}

/// The command has ended well, and the release gets no answer: the lock may still be held for a session timeout.
async fn a_release_without_an_answer_is_reported(site: &Site) {
    let folder = folder();
    let (begun, go) = (folder.path().join("begun"), folder.path().join("go"));
    let script = format!("echo > {}; while [ ! -e {} ]; do sleep 0.01; done", begun.display(), go.display());
    let url = format!("{}&operation_timeout=500ms", site.url(site.proxy.addr(), Duration::from_secs(20)));
    let child = zlock(&["run", "--url", &url, "--shell", "reports/late", "--", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    written(&begun).await;
    site.proxy.both(Flow::Hold);
    std::fs::write(&go, "").unwrap();
    let output = child.wait_with_output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "zlock: /reports/late: no server responds; this client's node may block others for 20s\n";
    assert_eq!((output.status.code(), &*said), (Some(0), expected));
}

on_each_store! {
    a_release_without_an_answer_is_reported,
}

on_store! { postgres, postgres: a_release_without_an_answer_is_reported, }
