//! The schema and its install.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::ErrorKind;
use zlock_ledger::{Calm as _, Fault, Kind, Lane as _, Ledger as _, Range, Write};
use zlock_postgres::{PostgresBackend, schema_sql};
use zlock_testkit::{PostgresServer, have_postgres, limit, limit_if, postgres_or_skip};

use crate::setup::{Store, append, delete, id, ignored, keys, queue, scope, tx, value};

/// What shows that a database has the first version.
const OLD: &str = "CREATE SCHEMA zlock; CREATE TABLE zlock.node (hash bigint);
    CREATE FUNCTION zlock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1'";

#[tokio::test]
async fn an_old_schema_is_named() {
    let Some(server) = postgres_or_skip().await else { return };
    limit(async {
        let store = Store::without_schema(server.clone(), "").await;
        store.connect("zlock").await.batch_execute(OLD).await.unwrap();
        let error = PostgresBackend::connect(store.options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let Err(Fault::Invalid(why)) = store.ledger().calm(None, ignored()).await else {
            panic!("it is taken")
        };
        assert!(why.contains("version 1") && why.contains("DROP SCHEMA zlock CASCADE"), "{why}");
        let operator = store.connect("postgres").await;
        let error = operator.batch_execute(&schema_sql()).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(
            error.message().contains("version 1") && error.hint().unwrap().contains("DROP SCHEMA"),
            "{error}"
        );
        // Nothing has happened to it.
        assert_eq!(
            store.number("SELECT count(*) FROM pg_class WHERE relnamespace = 'zlock'::regnamespace").await,
            1
        );
        store.execute("DROP SCHEMA zlock CASCADE").await;
        store.client().await;
    })
    .await;
}

#[tokio::test]
async fn a_missing_schema_is_only_created_if_that_is_wanted() {
    let Some(server) = postgres_or_skip().await else { return };
    limit(async {
        let store = Store::without_schema(server.clone(), "").await;
        let options = store.options().with_create_schema(false);
        let ledger = || {
            zlock_postgres::PostgresLedger::new(options.clone(), tokio::runtime::Handle::current()).unwrap()
        };
        let Err(Fault::Invalid(why)) = ledger().calm(None, ignored()).await else { panic!("it is there") };
        assert!(why.contains("create_schema=true"), "{why}");
        // By several at once, and while another one creates it.
        for round in 0..3 {
            let clients = (0..24).map(|n| {
                let ledger = store.ledger();
                async move {
                    sleep(Duration::from_millis(n / 2 * 8)).await;
                    ledger.calm(None, ignored()).await.map(drop)
                }
            });
            for connected in futures_util::future::join_all(clients).await {
                connected.unwrap();
            }
            if round < 2 {
                store.execute("DROP SCHEMA zlock CASCADE").await;
            }
        }
        ledger().calm(None, ignored()).await.unwrap();
        assert_eq!(store.number("SELECT count(*) FROM zlock.incarnation").await, 1);
        assert_eq!(store.number("SELECT count(*) FROM zlock.stripe").await, 8192);
    })
    .await;
}

#[tokio::test]
async fn an_install_under_load_loses_nothing() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let before = store.client().await;
        let salt = store.connect("postgres").await;
        let salt: Vec<u8> = salt.query_one("SELECT salt FROM zlock.setting", &[]).await.unwrap().get(0);
        let client = store.client().await;
        let installs = async {
            for _ in 0..5 {
                store.execute(&schema_sql()).await;
            }
        };
        let mut acquired = 0;
        let works = async {
            loop {
                let node_id = id();
                assert_eq!(keys(&client.create("/q", &node_id).await), [node_id.as_str()]);
                assert!(client.delete("/q", &node_id).await.is_some());
                client.put("/v", node_id.as_bytes()).await;
                acquired += 1;
            }
        };
        tokio::select! {
            () = installs => {}
            () = works => {}
        }
        assert!(acquired > 5, "{acquired}");
        assert!(before.calm.nodes(before.session).await.is_ok());
        let now = store.connect("postgres").await;
        let now: Vec<u8> = now.query_one("SELECT salt FROM zlock.setting", &[]).await.unwrap().get(0);
        assert_eq!(now, salt);
    })
    .await;
}

#[tokio::test]
async fn users_may_call_the_functions_and_nothing_else() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        let store = Store::without_schema(server, "").await;
        let create = store.options().with_create_schema(false);
        let ledger = || zlock_postgres::PostgresLedger::new(create.clone(), tokio::runtime::Handle::current()).unwrap();
        store.execute(&schema_sql()).await;
        let answer = ledger().calm(None, ignored()).await;
        assert!(matches!(answer, Err(Fault::Refused(_))), "{answer:?}");
        store.execute("GRANT zlock_user TO zlock").await;
        let client = crate::setup::Client::new(ledger()).await;
        let node_id = id();
        client.create("/q", &node_id).await;
        client.put("/v", b"1").await;
        client.keys("/q").await;
        client.calm.setup().await.unwrap();
        client.lane.transact(&[delete("/q", &node_id), append("/q", &id())]).await.unwrap()[1].as_ref().unwrap();

        let user = store.connect("zlock").await;
        user.batch_execute("SELECT zlock.version(), (SELECT count(*) FROM zlock.locks()), (SELECT count(*) FROM zlock.jobs())")
            .await
            .unwrap();
        let tables = store.connect("postgres").await;
        let tables = tables.query("SELECT relname::text FROM pg_class WHERE relnamespace = 'zlock'::regnamespace AND relkind IN ('r', 'S')", &[]);
        for table in tables.await.unwrap() {
            let sql = format!("SELECT FROM zlock.{}", table.get::<_, String>(0));
            let error = user.batch_execute(&sql).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{sql}");
        }
        let error = user.batch_execute("SELECT zlock.v2_forget(1)").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501");
        store.execute("CREATE ROLE other LOGIN").await;
        let error = store.connect("other").await.batch_execute("SELECT zlock.version()").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501");
        // A path of the caller's own does not mislead the functions.
        user.batch_execute(
            "CREATE SCHEMA evil; CREATE FUNCTION evil.neq(text, text) RETURNS boolean LANGUAGE plpgsql
                AS 'BEGIN RAISE EXCEPTION ''misled''; END'; CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.neq);
             SET search_path = evil, pg_catalog; SELECT zlock.v2_salt()",
        )
        .await
        .unwrap();
    })
    .await;
}

/// Paths, keys and data are bytes.
#[tokio::test]
async fn a_database_of_another_encoding_loses_nothing() {
    let Some(server) = postgres_or_skip().await else { return };
    limit(async {
        let latin = "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
        let store = Store::without_schema(server.clone(), latin).await;
        let (one, two) = (store.client().await, store.client().await);
        let path = "/страница/ページ/é";
        let (first, second) = (id(), id());
        one.create(path, &first).await;
        assert_eq!(keys(&two.create(path, &second).await), [first.as_str(), second.as_str()]);
        one.delete(path, &first).await;
        let group = scope(Kind::Group, path);
        let member = Write::Append { key: "имя".into(), owned: true, label: None, data: vec![0xff, 0] };
        one.transact(tx(group.clone(), &[], &[member])).await.unwrap();
        let members = two.read(group, Range::All).await;
        assert_eq!((members[0].key.as_str(), members[0].data.as_slice()), ("имя", &[0xff, 0][..]));
        let value_path = format!("{path}.job");
        one.put(&value_path, b"1").await;
        assert_eq!(two.read(value(&value_path), Range::Key(String::new())).await.len(), 1);
        let answer =
            one.calm.end(&[zlock_ledger::End { session: two.session, beat: None }], &[queue(path)]).await;
        assert_eq!(answer.unwrap(), [zlock_ledger::Ended::Over]);
        assert_eq!(one.keys(path).await, Vec::<String>::new());
        assert_eq!(store.number("SELECT count(*) FROM zlock.jobs()").await, 1);
    })
    .await;
}

#[tokio::test]
async fn operators_see_locks_and_jobs() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        for path in ["/a/é", "/a/é", "/a", "/ab", "/b"] {
            client.create(path, &id()).await;
        }
        for path in ["/a/one.job", "/a/.job", "/a/b/two.job", "/ab/three.job", "/a/four"] {
            client.put(path, b"").await;
        }
        let operator = store.connect("postgres").await;
        let locks = async |below: &str| {
            let rows = operator
                .query("SELECT path, nodes, has_doubtful FROM zlock.locks($1)", &[&below])
                .await
                .unwrap();
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect::<Vec<(String, i64, bool)>>()
        };
        let found = |path: &str, nodes| (path.to_owned(), nodes, false);
        assert_eq!(locks("/a").await, [found("/a", 1), found("/a/é", 2)]);
        assert_eq!(locks("").await.len(), 4);
        let sql = format!(
            "UPDATE zlock.beat SET renewed = renewed - interval '1 h' WHERE session = {}",
            client.session.get()
        );
        store.execute(&sql).await;
        assert_eq!(locks("/b").await, [("/b".to_owned(), 1, true)]);
        let jobs = async |below: &str| {
            let rows = operator.query("SELECT path FROM zlock.jobs($1)", &[&below]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
        };
        assert_eq!(jobs("/a").await, ["/a/b/two", "/a/one"]);
        assert_eq!(jobs("").await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn another_isolation_level_is_refused() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        store.execute("ALTER ROLE zlock IN DATABASE zlock RESET ALL").await;
        let user = store.connect("zlock").await;
        user.batch_execute("SET default_transaction_isolation = 'repeatable read'").await.unwrap();
        let session = i64::try_from(client.session.get()).unwrap();
        for sql in [
            "SELECT zlock.v2_salt()".to_owned(),
            format!("SELECT zlock.v2_nodes({session})"),
            format!("SELECT zlock.v2_delete({session}, 1, '{{}}', '{{}}')"),
            format!("SELECT zlock.v2_append({session}, 1, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')"),
        ] {
            let error = user.batch_execute(&sql).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code().code(), "ZL005", "{sql}: {error}");
            assert!(error.hint().unwrap().contains("ALTER ROLE"), "{error}");
        }
    })
    .await;
}
