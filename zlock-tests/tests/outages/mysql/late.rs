//! Requests that arrive over an earlier connection of their session.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder};
use zlock_core::CoordinationBackend;
use zlock_testkit::mysql::backend;
use zlock_testkit::{MariaDb, have_mariadb, limit_if};

/// What a lane sends, with the session and the number of the lane in place of `{S}` and `{N}`.
const WRITES: [&str; 4] = [
    "CALL zlock_append({S}, {N}, REPEAT('i', 16), REPEAT('s', 16), 1, '/late', 'key', 'lock', '', 0, 2)",
    "CALL zlock_delete({S}, {N}, REPEAT('i', 16), 1)",
    "CALL zlock_queue({S}, {N}, '[]', '[]', '[]', '')",
    "CALL zlock_execute({S}, 0, {N}, '[]', '[]', '')",
];

async fn connect(server: &MariaDb) -> Conn {
    let at = server.addr();
    let opts = OptsBuilder::default().ip_or_hostname(at.ip().to_string()).tcp_port(at.port());
    let opts = opts.prefer_socket(false).user(Some("zlock")).db_name(Some("zlock"));
    let mut conn = Conn::new(opts).await.unwrap();
    conn.query_drop("CALL zlock_open()").await.unwrap();
    conn
}

/// Sends each write. Returns the SQLSTATE of each refusal.
async fn send(conn: &mut Conn, session: i64, number: i64) -> Vec<String> {
    let mut refused = Vec::new();
    for write in WRITES {
        let write = write.replace("{S}", &session.to_string()).replace("{N}", &number.to_string());
        match conn.query_drop(write).await {
            Ok(()) => {}
            Err(Error::Server(error)) => refused.push(error.state),
            Err(error) => panic!("{error}"),
        }
    }
    refused
}

/// The next connection of a session raises the number of its lane, and so does whatever makes the tables others: what was sent before, and
/// arrives after that, changes nothing.
#[tokio::test]
async fn writes_over_an_earlier_connection_are_refused() {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&[]).await;
        let client = backend(&server).await;
        let session = client.session_events().current().id.get().cast_signed();
        let (mut old, mut new) = (connect(&server).await, connect(&server).await);
        let raise = format!("CALL zlock_raise({session}, 0)");
        let first: i64 = old.query_first(&raise).await.unwrap().unwrap();
        assert_eq!(send(&mut old, session, first).await, [""; 0]);
        let second: i64 = new.query_first(&raise).await.unwrap().unwrap();
        assert!(second > first);
        assert_eq!(send(&mut old, session, first).await, ["ZL011"; 4]);
        assert_eq!(send(&mut new, session, second).await, [""; 0]);
        let mut operator = connect(&server).await;
        operator.query_drop("CALL zlock_restored(NULL)").await.unwrap();
        assert_eq!(send(&mut new, session, second).await, ["ZL011"; 4]);
    })
    .await;
}
