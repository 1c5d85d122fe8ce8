//! The suites on the example backend, in paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(unreachable_pub, reason = "an example has no users")]

#[path = "../examples/toy_store/backend.rs"]
mod backend;
#[path = "../examples/toy_store/groups.rs"]
mod groups;
#[path = "../examples/toy_store/server.rs"]
mod server;
#[path = "../examples/toy_store/values.rs"]
mod values;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use zlock::backend::LockPath;
use zlock::{Connect, Environment, ErrorKind, InterProcessMutex, SessionState, WriteLock};
use zlock_suite::{Connection, Links, Store};
use zlock_suite::{Occupied, OnePermit, Pair};

use self::backend::{TTL, ToyBackend};
use self::server::{Mode, Row, Server};

/// One server per test.
#[derive(Default)]
struct ToyStore {
    server: Server,
    connections: Mutex<Vec<Arc<server::Connection>>>,
}

impl ToyStore {
    /// A backend whose task has not run yet.
    fn begin(&self) -> Connection {
        let backend = ToyBackend::connect(&self.server);
        let mut connections = self.connections.lock().unwrap();
        connections.push(backend.connection());
        Connection { backend: Arc::new(backend), key: connections.len() - 1 }
    }

    fn set_mode(&self, connection: &Connection, mode: Mode) {
        self.connections.lock().unwrap()[connection.key].mode.send_replace(mode);
    }
}

#[async_trait]
impl Store for ToyStore {
    async fn connect(&self) -> Connection {
        let connection = self.begin();
        let mut events = connection.session_events();
        while events.current().state != SessionState::Connected {
            events.changed().await;
        }
        connection
    }

    fn root(&self) -> LockPath {
        LockPath::new("/suite").unwrap()
    }

    fn session_timeout(&self) -> Duration {
        TTL
    }

    async fn names(&self, parent: &LockPath) -> Vec<String> {
        self.server.transaction(|table| {
            let rows = table.rows.iter().filter(|row| row.parent == *parent);
            rows.map(|row| row.name.clone()).collect()
        })
    }

    async fn put(&self, parent: &LockPath, name: &str) {
        self.server.transaction(|table| {
            let row = Row::new(table.next_revision(), parent, name, b"");
            table.rows.push(row);
        });
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        self.server.transaction(|table| table.delete(|row| row.parent == *parent && row.name == name));
    }

    async fn remove_parent(&self, _parent: &LockPath) {}

    async fn expire(&self, connection: &Connection) {
        let session = connection.session_events().current().id;
        self.server.transaction(|table| table.end_session(session));
    }

    fn links(&self) -> Option<&dyn Links> {
        Some(self)
    }
}

#[async_trait]
impl Links for ToyStore {
    async fn connect_cut(&self) -> Connection {
        let connection = self.begin();
        self.set_mode(&connection, Mode::Cut);
        connection
    }

    async fn cut(&self, connection: &Connection) {
        self.set_mode(connection, Mode::Cut);
    }

    async fn freeze(&self, connection: &Connection) {
        self.set_mode(connection, Mode::Frozen);
    }

    async fn mute(&self, connection: &Connection) {
        self.set_mode(connection, Mode::Mute);
    }

    async fn heal(&self, connection: &Connection) {
        self.set_mode(connection, Mode::Up);
    }
}

/// The revisions pass 2^31 in each test: places may have larger numbers than the names of ZooKeeper's nodes.
async fn store() -> Option<ToyStore> {
    let store = ToyStore::default();
    store.server.transaction(|table| table.revision = (1 << 31) - 5);
    Some(store)
}

/// On every lock path, 4 of 5 permits are already taken.
async fn occupied() -> Option<Occupied<ToyStore>> {
    Some(Occupied::new(store().await?, 4, 5).await)
}

#[tokio::test]
async fn a_registered_scheme_is_as_good_as_a_built_in_one() {
    let unknown = zlock::connect("toy://").await.unwrap_err();
    assert!(unknown.to_string().contains("unknown scheme; use mem://"), "{unknown}");
    zlock::register("Toy", Server::default()).unwrap();
    let client = zlock::connect("toy://anywhere/app").await.unwrap();
    let _guard = client.mutex("/a").unwrap().acquire().await.unwrap();
    let lazy = Connect::to("TOY://").connect_lazy().unwrap();
    assert!(lazy.mutex("/a").unwrap().try_acquire().await.unwrap().is_none());
    let blocking = std::thread::spawn(|| {
        let client = zlock::blocking::connect("toy://").unwrap();
        let is_free = client.mutex("/a").unwrap().try_acquire().unwrap().is_some();
        client.close().unwrap();
        is_free
    });
    assert!(!tokio::task::spawn_blocking(|| blocking.join().unwrap()).await.unwrap());

    let set = [("ZLOCK_URL", "toy://"), ("ZLOCK_USER", "me"), ("ZLOCK_PASSWORD", "SECRET")];
    let environment = Environment::read(|name| {
        set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
    });
    let connect = Connect::to("toy://").with_environment(environment.unwrap());
    for refused in [connect.clone().connect().await, connect.connect_lazy()] {
        assert!(
            refused.unwrap_err().to_string().contains("ZLOCK_USER: invalid argument: is set, and toy://")
        );
    }
    let refused = Connect::to("toy://h?x=1").connect_lazy().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidUrl);
    let unknown = zlock::connect("tox://").await.unwrap_err();
    assert!(unknown.to_string().ends_with("etcd+srv://, toy://"), "{unknown}");

    for (scheme, why) in [
        ("toy", "toy: invalid argument: is registered already"),
        ("TOY", "TOY: invalid argument: is registered already"),
        ("mem", "mem: invalid argument: is a scheme of zlock's own"),
        ("Postgresql", "Postgresql: invalid argument: is a scheme of zlock's own"),
        ("zk+srv", "zk+srv: invalid argument: is a scheme of zlock's own"),
        ("", "is not a scheme"),
        ("1a", "1a: invalid argument: is not a scheme"),
        ("a://b", "a://b: invalid argument: is not a scheme"),
        ("a/", "is not a scheme"),
        ("a?b", "is not a scheme"),
        ("a@", "is not a scheme"),
    ] {
        let refused = zlock::register(scheme, Server::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{scheme}");
        assert!(refused.to_string().contains(why), "{scheme}: {refused}");
    }
}

// ANCHOR: suites
zlock_suite::conformance!(paused, store(), except [numbers, watches]);

mod mutex {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), InterProcessMutex, except[outlast]);
}

mod of_values {
    use super::*;
    zlock_suite::values_conformance!(paused, store(), except[watches]);
}

mod of_groups {
    use super::*;
    zlock_suite::groups_conformance!(paused, store(), except[watches]);
}
// ANCHOR_END: suites

mod write_lock {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), WriteLock, [mutual, reentry, safety, strict, faults]);
}

mod semaphore_of_one {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), OnePermit<1>, [mutual, strict, faults]);
}

mod semaphore_of_five {
    use super::*;
    zlock_suite::mutual_suite!(paused, occupied(), OnePermit<5>, [safety, strict]);
}

mod multi_lock_of_two {
    use super::*;
    zlock_suite::mutual_suite!(paused, store(), Pair, [faults]);
}

mod recipes {
    use super::*;
    zlock_suite::recipe_suite!(
        paused,
        store(),
        [
            template,
            kinds,
            guard,
            participants,
            revocation,
            multi,
            cost,
            input,
            read_write,
            downgrade,
            semaphore,
            promotion,
            succession,
            handoff,
            members
        ]
    );
}
