//! The proxy in front of a trivial echo server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use zlock_testkit::{Cut, FaultProxy, Flow, Lose, limit, zk_op, zookeeper_request};

const SHORT: Duration = Duration::from_millis(150);

/// Echoes; tells what arrived at it.
async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (arrived, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let arrived = arrived.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    let _ = arrived.send(buffer[..n].to_vec());
                    stream.write_all(&buffer[..n]).await.unwrap();
                }
            });
        }
    });
    (addr, told)
}

struct Client(TcpStream);

impl Client {
    async fn connect(proxy: &FaultProxy) -> Self {
        let mut client = Client(TcpStream::connect(proxy.addr()).await.unwrap());
        client.expect("hello").await;
        client
    }

    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> std::io::Result<String> {
        let mut buffer = [0; 1024];
        let n = self.0.read(&mut buffer).await?;
        Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
    }

    async fn expect(&mut self, text: &str) {
        self.send(text).await;
        assert_eq!(self.receive().await.unwrap(), text);
    }

    async fn expect_silence(&mut self) {
        assert!(timeout(SHORT, self.receive()).await.is_err(), "something arrived");
    }
}

#[tokio::test]
async fn passes_and_counts() {
    limit(async {
        let (server, _told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let mut client = Client::connect(&proxy).await;
        client.expect("abc").await;
        assert_eq!((proxy.bytes_to_server(), proxy.bytes_to_client(), proxy.connections()), (8, 8, 1));
        // An orderly end goes through, in both directions.
        client.0.shutdown().await.unwrap();
        assert_eq!(client.receive().await.unwrap(), "");
    })
    .await;
}

#[tokio::test]
async fn swallows_in_either_direction_and_for_good() {
    limit(async {
        let (server, mut told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let mut a = Client::connect(&proxy).await;
        told.recv().await.unwrap();
        proxy.to_server(Flow::Swallow);
        a.send("lost").await;
        a.expect_silence().await;
        assert!(told.try_recv().is_err());
        let mut b = {
            proxy.both(Flow::Pass);
            Client::connect(&proxy).await
        };
        told.recv().await.unwrap();
        proxy.to_client(Flow::Swallow);
        b.send("answer lost").await;
        b.expect_silence().await;
        assert_eq!(told.recv().await.unwrap(), b"answer lost");
        proxy.heal().await;
        a.send("more").await;
        a.expect_silence().await;
        b.send("more").await;
        b.expect_silence().await;
        Client::connect(&proxy).await;
    })
    .await;
}

#[tokio::test]
async fn holds_and_releases() {
    limit(async {
        let (server, mut told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let mut client = Client::connect(&proxy).await;
        told.recv().await.unwrap();
        proxy.both(Flow::Hold);
        client.send("one").await;
        client.expect_silence().await;
        client.send("two").await;
        assert!(told.try_recv().is_err());
        proxy.both(Flow::Pass);
        let mut all = String::new();
        while all.len() < 6 {
            all += &client.receive().await.unwrap();
        }
        assert_eq!(all, "onetwo");
    })
    .await;
}

#[tokio::test]
async fn delays_without_adding_up() {
    limit(async {
        let (server, _told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let mut client = Client::connect(&proxy).await;
        proxy.to_server(Flow::Delay(2 * SHORT));
        let began = Instant::now();
        for _ in 0..5 {
            client.send("x").await;
            tokio::time::sleep(SHORT / 10).await;
        }
        let mut all = String::new();
        while all.len() < 5 {
            all += &client.receive().await.unwrap();
            assert!(began.elapsed() >= 2 * SHORT);
        }
        assert!(began.elapsed() < 10 * SHORT, "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn ends_and_resets() {
    limit(async {
        let (server, _told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let mut client = Client::connect(&proxy).await;
        proxy.cut(Cut::Fin);
        assert_eq!(client.receive().await.unwrap(), "");
        let mut client = Client::connect(&proxy).await;
        proxy.cut(Cut::Reset);
        assert_eq!(client.receive().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let mut client = Client::connect(&proxy).await;
        proxy.cut(Cut::Mute);
        client.send("x").await;
        client.expect_silence().await;
        Client::connect(&proxy).await;
    })
    .await;
}

/// Closing with bytes unread would be a reset.
#[tokio::test]
async fn an_orderly_end_is_one_also_while_bytes_come() {
    limit(async {
        let (server, _told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let client = Client::connect(&proxy).await;
        proxy.to_client(Flow::Swallow);
        let (mut from, mut to) = client.0.into_split();
        let flood = tokio::spawn(async move { while to.write_all(&[0; 1 << 20]).await.is_ok() {} });
        tokio::time::sleep(SHORT / 10).await;
        proxy.cut(Cut::Fin);
        assert_eq!(from.read(&mut [0; 16]).await.unwrap(), 0);
        flood.abort();
    })
    .await;
}

#[tokio::test]
async fn refuses_and_freezes() {
    limit(async {
        let (server, _told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let mut old = Client::connect(&proxy).await;
        proxy.refuse().await;
        let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        old.expect("still there").await;
        proxy.freeze().await;
        let mut new = Client(TcpStream::connect(proxy.addr()).await.unwrap());
        new.send("new").await;
        old.send("old").await;
        new.expect_silence().await;
        old.expect_silence().await;
        proxy.heal().await;
        assert_eq!(new.receive().await.unwrap(), "new");
        assert_eq!(old.receive().await.unwrap(), "old");
    })
    .await;
}

#[tokio::test]
async fn changes_its_upstream() {
    limit(async {
        let (first, mut first_told) = echo().await;
        let (second, mut second_told) = echo().await;
        let proxy = FaultProxy::start(first).await;
        Client::connect(&proxy).await;
        proxy.set_upstream(second);
        Client::connect(&proxy).await;
        assert_eq!(first_told.recv().await.unwrap(), b"hello");
        assert!(first_told.try_recv().is_err());
        assert_eq!(second_told.recv().await.unwrap(), b"hello");
        let nobody = zlock_testkit::Port::reserve();
        proxy.set_upstream(nobody.addr());
        let mut client = Client(TcpStream::connect(proxy.addr()).await.unwrap());
        assert!(client.receive().await.is_err());
    })
    .await;
}

#[tokio::test]
async fn loses_a_request() {
    limit(async {
        let (server, mut told) = echo().await;
        let proxy = FaultProxy::start(server).await;
        let mut client = Client::connect(&proxy).await;
        told.recv().await.unwrap();
        let staged = proxy.lose_next(Lose::Request, |request| request == b"this", Cut::Reset);
        client.expect("that").await;
        client.send("this").await;
        staged.happened().await;
        assert_eq!(client.receive().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(told.recv().await.unwrap(), b"that");
        assert!(told.try_recv().is_err());
        Client::connect(&proxy).await.expect("this").await;
    })
    .await;
}

#[tokio::test]
async fn loses_an_answer() {
    limit(async {
        for cut in [Cut::Fin, Cut::Reset, Cut::Mute] {
            let (server, mut told) = echo().await;
            let proxy = FaultProxy::start(server).await;
            let mut client = Client::connect(&proxy).await;
            told.recv().await.unwrap();
            let staged = proxy.lose_next(Lose::Answer, |request| request == b"this", cut);
            client.expect("that").await;
            client.send("this").await;
            staged.happened().await;
            match cut {
                Cut::Fin => assert_eq!(client.receive().await.unwrap(), ""),
                Cut::Reset => assert!(client.receive().await.is_err()),
                Cut::Mute => client.expect_silence().await,
            }
            assert_eq!(told.recv().await.unwrap(), b"that");
            assert_eq!(told.recv().await.unwrap(), b"this");
        }
    })
    .await;
}

fn frame(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}

/// Two requests back to back, an answer in between that is not the one: only the right one is lost, and
/// only once the server has given it.
#[tokio::test]
async fn loses_the_answer_of_one_zookeeper_request_among_others() {
    limit(async {
        let (server, _told) = echo().await;
        let proxy = FaultProxy::start_zookeeper(server).await;
        let mut client = Client(TcpStream::connect(proxy.addr()).await.unwrap());
        let create = zk_op::CREATE2.to_be_bytes();
        let ping = zk_op::PING.to_be_bytes();
        let handshake = frame(&[b"aaaa", &create, b"the first frame is none"]);
        let (one, two) = (frame(&[b"xid1", &ping]), frame(&[b"xid2", &create, b"data"]));
        let three = frame(&[b"xid3", &ping]);
        let staged = proxy.lose_next(Lose::Answer, zookeeper_request(&[zk_op::CREATE2]), Cut::Fin);
        client.0.write_all(&[handshake.clone(), one.clone(), two, three].concat()).await.unwrap();
        staged.happened().await;
        let mut received = Vec::new();
        client.0.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, [handshake, one].concat());
    })
    .await;
}
