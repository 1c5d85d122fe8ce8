//! A relay that alters requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Stands between clients and a server, and alters what the clients send.
#[derive(Debug)]
pub struct Relay {
    /// The address for clients.
    pub hosts: String,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    /// Starts a relay. `alter` gets the number of the connection, counted from 0, and each request but the first, which opens the
    /// session and has no header.
    ///
    /// # Panics
    /// Panics if there is no free port.
    pub async fn start(
        server: SocketAddr,
        alter: impl Fn(usize, &mut [u8]) + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (hosts, connections) =
            (listener.local_addr().unwrap().to_string(), Arc::<AtomicUsize>::default());
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(server).await.unwrap();
                client.set_nodelay(true).and(server.set_nodelay(true)).unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                let alter = alter.clone();
                tokio::spawn(async move {
                    let mut is_connected = false;
                    while let Ok(length) = from_client.read_u32().await {
                        let mut request = vec![0; length as usize];
                        from_client.read_exact(&mut request).await?;
                        if is_connected {
                            alter(number, &mut request);
                        }
                        is_connected = true;
                        to_server.write_all(&[&length.to_be_bytes()[..], &request].concat()).await?;
                    }
                    std::io::Result::Ok(())
                });
            }
        });
        Relay { hosts, connections }
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Returns the code of a request's operation, as in [`zk_op`](crate::zk_op).
///
/// # Panics
/// Panics if the request has no header.
#[must_use]
pub fn operation(request: &[u8]) -> i32 {
    i32::from_be_bytes(request[4..8].try_into().unwrap())
}
