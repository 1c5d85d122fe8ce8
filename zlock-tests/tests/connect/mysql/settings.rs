//! Servers with other settings, servers that cannot be used, and users with few rights.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use zlock_core::{ErrorKind, Groups as _, LockPath, MAX_DATA, Values as _};
use zlock_mysql::{MysqlBackend, MysqlOptions, schema_sql};
use zlock_recipes::Client;
use zlock_testkit::mysql::{options, path, release, sql};
use zlock_testkit::{MariaDb, have_mariadb, limit_if};

/// Feeds SQL to the client of the server's package, as an operator does.
fn as_operator(server: &MariaDb, text: &str) {
    let port = server.addr().port().to_string();
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-h127.0.0.1", "-uroot", "-P", &port, "zlock"]);
    let mut child = client.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Whatever the server's settings are, names compare by bytes and everything works.
#[tokio::test]
async fn settings_of_the_server_do_not_matter() {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&[
            "--sql-mode=ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY,HIGH_NOT_PRECEDENCE",
            "--default-time-zone=+05:00",
            "--character-set-server=latin1",
            "--collation-server=latin1_swedish_ci",
            "--innodb-lock-wait-timeout=50",
            "--autocommit=0",
            "--transaction-isolation=SERIALIZABLE",
            "--default-storage-engine=MyISAM",
            "--wait-timeout=2",
            "--max-allowed-packet=64K",
        ])
        .await;
        let address = server.addr().to_string();
        let client = Client::new(MysqlBackend::connect(options(&address)).await.unwrap());
        let other = MysqlBackend::connect(options(&address)).await.unwrap();
        let locks = ["Orders", "orders", "örders", "Örders", "orders."];
        let mut guards = Vec::new();
        for lock in locks {
            let mutex = client.mutex(format!("/{lock}")).unwrap();
            guards.push(mutex.acquire_timeout(Duration::from_secs(5)).await.unwrap());
        }
        for guard in guards {
            release(guard).await;
        }
        let group = path("group");
        for member in ["a", "A", "ä", "Ä"] {
            other.join(&group.join(member).unwrap(), b"\0'\"\\\xff", false).await.unwrap();
        }
        let (members, _) = other.members_with_watch(&group).await.unwrap();
        assert_eq!(members.len(), 4, "{members:?}");
        // More than the server takes.
        let large = vec![7; MAX_DATA];
        let error = other.write_value(&path("large"), None, &large, None).await.unwrap_err();
        assert!(error.to_string().contains("max_allowed_packet"), "{error}");
        other.write_value(&path("small"), None, &large[..20_000], None).await.unwrap();
    })
    .await;
}

/// An operator installs the schema, and the user may execute its procedures and nothing else.
#[tokio::test]
async fn a_user_needs_no_right_but_those_of_the_procedures() {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&[]).await;
        let options = |user: &str| {
            let base =
                MysqlOptions::new([server.addr().to_string()]).with_database("zlock").with_user(user, None);
            base.with_ttl(Duration::from_secs(4)).with_connect_timeout(Duration::from_secs(5))
        };
        as_operator(&server, "CREATE USER few@'%'; GRANT USAGE ON zlock.* TO few@'%';");
        let error = MysqlBackend::connect(options("few")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        let error = MysqlBackend::connect(options("zlock")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("zlock mysql schema"), "{error}");
        // Twice, as an upgrade does.
        as_operator(&server, &schema_sql());
        as_operator(&server, &schema_sql());
        let names = "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'zlock'";
        for name in sql::<String>(&server, names, ()).await {
            as_operator(&server, &format!("GRANT EXECUTE ON PROCEDURE zlock.{name} TO few@'%';"));
        }
        let backend = MysqlBackend::connect(options("few")).await.unwrap();
        release(Client::new(backend).mutex("/a").unwrap().acquire().await.unwrap()).await;
        let mut few = options("few").connect_client().await.unwrap();
        let read = mysql_async::prelude::Queryable::query_drop(&mut few, "SELECT * FROM zlock_entry").await;
        assert!(read.is_err(), "a right too many");
    })
    .await;
}

/// A replica does not accept writes: another server is used, and without one the error says why.
#[tokio::test]
async fn a_server_that_is_read_only_is_not_used() {
    limit_if(have_mariadb(), async {
        let (good, replica) = (MariaDb::start(&[]).await, MariaDb::start(&[]).await);
        drop(MysqlBackend::connect(options(&replica.addr().to_string())).await.unwrap());
        sql::<u8>(&replica, "SET GLOBAL read_only = 1", ()).await;
        let of = |servers: &[&MariaDb]| {
            let options = MysqlOptions::new(servers.iter().map(|server| server.addr().to_string()));
            let options = options.with_database("zlock").with_user("zlock", None).with_create_schema(true);
            options.with_connect_timeout(Duration::from_secs(5))
        };
        let error = MysqlBackend::connect(of(&[&replica])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("read-only"), "{error}");
        let sessions = async || sql::<u64>(&replica, "SELECT COUNT(*) FROM zlock_session", ()).await;
        let before = sessions().await;
        let backend = MysqlBackend::connect(of(&[&replica, &good])).await.unwrap();
        let lock = LockPath::new("/a").unwrap();
        release(Client::new(backend).mutex(lock.as_str()).unwrap().acquire().await.unwrap()).await;
        assert_eq!(sessions().await, before, "a session that only a replica has");
    })
    .await;
}
