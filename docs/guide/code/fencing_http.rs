//! Fencing over HTTP: the token travels in a header, and the service refuses one that was overtaken.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Mutex;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use zlock::FencingToken;

type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

// ANCHOR: header
/// Both sides agree on the name and on the form: one integer in decimal digits.
const HEADER: &str = "Fencing-Token";

/// The header's value, on the side of the client.
fn header(token: FencingToken) -> String {
    u128::from(token).to_string()
}
// ANCHOR_END: header

// ANCHOR: service
/// The state that the lock protects. In a real service, the token and the data are in one database.
#[derive(Default)]
struct Prices {
    fence: u128,
    tea: u32,
}

/// Handles one request; returns the status code.
fn put_price(prices: &Mutex<Prices>, fencing_token: Option<&str>, tea: u32) -> u16 {
    let Some(token) = fencing_token else { return 428 }; // Precondition Required
    let Ok(token) = token.parse::<u128>() else { return 400 }; // Bad Request
    let Ok(mut prices) = prices.lock() else { return 500 };
    if token < prices.fence {
        return 412; // Precondition Failed: a later holder has been here
    }
    *prices = Prices { fence: token, tea };
    204
}
// ANCHOR_END: service

/// Just enough of HTTP/1.1 to see the header arrive.
async fn serve(listener: TcpListener, prices: &Mutex<Prices>) -> Result {
    loop {
        let (stream, _) = listener.accept().await?;
        let mut stream = BufReader::new(stream);
        let (mut token, mut length, mut line) = (None, 0, String::new());
        while stream.read_line(&mut line).await? > 2 {
            if let Some((name, value)) = line.split_once(':') {
                match name {
                    HEADER => token = Some(value.trim().to_owned()),
                    "Content-Length" => length = value.trim().parse()?,
                    _ => {}
                }
            }
            line.clear();
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let status = put_price(prices, token.as_deref(), String::from_utf8(body)?.parse()?);
        let answer = format!("HTTP/1.1 {status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
}

async fn put(address: std::net::SocketAddr, token: Option<FencingToken>, tea: u32) -> Result<u16> {
    let mut stream = TcpStream::connect(address).await?;
    let body = tea.to_string();
    let fence = token.map(|token| format!("{HEADER}: {}\r\n", header(token))).unwrap_or_default();
    let length = body.len();
    let request =
        format!("PUT /prices/tea HTTP/1.1\r\nHost: h\r\n{fence}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).unwrap_or_default().parse()?)
}

#[tokio::test]
async fn an_overtaken_holder_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let prices = Mutex::new(Prices::default());
    let client = async {
        let (old, new) = (FencingToken::new(33), FencingToken::new(34));
        assert_eq!(put(address, Some(old), 1).await.unwrap(), 204);
        assert_eq!(put(address, Some(new), 2).await.unwrap(), 204);
        assert_eq!(put(address, Some(new.with_turn(1)), 3).await.unwrap(), 204);
        assert_eq!(put(address, Some(new), 4).await.unwrap(), 412);
        assert_eq!(put(address, Some(old), 5).await.unwrap(), 412);
        assert_eq!(put(address, None, 6).await.unwrap(), 428);
    };
    tokio::select! {
        served = serve(listener, &prices) => panic!("{served:?}"),
        () = client => {}
    }
    assert_eq!(prices.lock().unwrap().tea, 3);
}
