//! Requests that arrive after their node's name was reused.

use std::time::Duration;

use etcd_client::Client as Observer;
use tokio::time::{sleep, timeout};
use zlock_core::{CoordinationBackend, Deletion, Groups, Joined, Label, LockPath, Needs, Target};
use zlock_etcd::EtcdBackend;

use super::{delete, key, lease, value};
use zlock_testkit::etcd::{self, create, names, observer, path, token};
use zlock_testkit::{Etcd, FaultProxy, Flow, etcd_or_skip, limit, until};

/// A backend that uses one server and moves to another when requests to the first are delayed.
struct Late {
    slow: FaultProxy,
    _fast: FaultProxy,
    backend: EtcdBackend,
    observer: Observer,
    path: LockPath,
    sent: u64,
}

/// Longer than a client waits for a server's answer before it asks the next one.
const LATE: Duration = Duration::from_millis(2500);

impl Late {
    async fn new(server: &Etcd) -> Self {
        let [slow, fast] = [FaultProxy::start(server.addr()).await, FaultProxy::start(server.addr()).await];
        let hosts = format!("{},{}", slow.connect_string(), fast.connect_string());
        let backend = EtcdBackend::connect(etcd::options(&hosts)).await.unwrap();
        let observer = observer(&server.connect_string()).await;
        Late { slow, _fast: fast, backend, observer, path: path("late"), sent: 0 }
    }

    /// From now on, requests arrive late, and the client does not wait for them.
    fn slow_down(&mut self) {
        self.slow.to_server(Flow::Delay(LATE));
        self.sent = self.slow.bytes_to_server();
    }

    /// Waits until the requests sent to the slow server have arrived and have been served.
    async fn arrived(&self) {
        assert_eq!(self.slow.bytes_to_server(), self.sent, "it has arrived too early");
        until("it arrives", async || self.slow.bytes_to_server() > self.sent).await;
        sleep(Duration::from_millis(500)).await;
    }

    async fn names(&self) -> Vec<String> {
        names(&self.observer, &self.path).await
    }
}

/// The first delete of a node compares nothing. It arrives when its name would be in use again.
#[tokio::test]
async fn a_plain_delete_that_comes_late_finds_no_other_node() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut late = Late::new(server).await;
        let first = create(&late.backend, &late.path, Label::Lock).await;
        late.slow_down();
        assert_eq!(delete(&late.backend, &late.path, &first.node).await, Deletion::Deleted);
        let second = create(&late.backend, &late.path, Label::Lock).await;
        late.arrived().await;
        assert_eq!(late.names().await, [second.node.name.to_string()], "the next node was removed");
        assert_ne!(second.node.name, first.node.name);
        assert_eq!(delete(&late.backend, &late.path, &second.node).await, Deletion::Deleted);
        // The second delete was answered, so its name is used again.
        let third = create(&late.backend, &late.path, Label::Lock).await;
        assert_eq!(third.node.name, second.node.name);
        assert_eq!(delete(&late.backend, &late.path, &third.node).await, Deletion::Deleted);
    })
    .await;
}

/// A hand-over, which deletes the node, is repeated as a delete. It arrives after the name was reused.
#[tokio::test]
async fn a_hand_over_that_comes_late_spares_the_next_node_of_the_name() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut late = Late::new(server).await;
        let first = create(&late.backend, &late.path, Label::Lock).await;
        let next = create(&late.backend, &late.path, Label::Lock).await;
        late.slow_down();
        let target = Target::Node(first.node.clone());
        let deletion = late.backend.delete(&late.path, &target, Some(&next.node)).await.unwrap();
        assert_eq!(deletion, Deletion::Deleted);
        let third = create(&late.backend, &late.path, Label::Lock).await;
        assert_eq!(third.node.name, first.node.name);
        late.arrived().await;
        assert_eq!(late.names().await.len(), 2);
        for made in [next, third] {
            assert_eq!(delete(&late.backend, &late.path, &made.node).await, Deletion::Deleted);
        }
    })
    .await;
}

/// A create is given up, and so is the first attempt to void it. Both arrive after the name was reused.
#[tokio::test]
async fn a_create_given_up_and_its_delete_that_come_late_spare_the_next_node_of_the_name() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut late = Late::new(server).await;
        let token = token();
        late.slow_down();
        let given_up =
            late.backend.create_ephemeral_sequential(&late.path, Label::Lock, &token, b"", Needs::Queue);
        assert!(timeout(Duration::from_millis(100), given_up).await.is_err());
        late.backend.delete(&late.path, &Target::Id(token), None).await.unwrap();
        let next = create(&late.backend, &late.path, Label::Lock).await;
        assert_eq!(next.node.name.as_str(), format!("{:x}", lease(&late.backend)));
        late.arrived().await;
        assert_eq!(late.names().await, [next.node.name.to_string()]);
        let queue = late.backend.children(&late.path, None).await.unwrap();
        assert_eq!(*queue, *std::slice::from_ref(&next.node), "neither removed nor made anew");
        assert_eq!(delete(&late.backend, &late.path, &next.node).await, Deletion::Deleted);
    })
    .await;
}

/// The same when even the next use of the name is over. Nothing is created.
#[tokio::test]
async fn a_create_that_comes_late_makes_nothing_of_a_name_that_is_free_again() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut late = Late::new(server).await;
        let token = token();
        late.slow_down();
        let given_up =
            late.backend.create_ephemeral_sequential(&late.path, Label::Lock, &token, b"", Needs::Queue);
        assert!(timeout(Duration::from_millis(100), given_up).await.is_err());
        late.backend.delete(&late.path, &Target::Id(token), None).await.unwrap();
        let next = create(&late.backend, &late.path, Label::Lock).await;
        assert_eq!(delete(&late.backend, &late.path, &next.node).await, Deletion::Deleted);
        late.arrived().await;
        assert_eq!(late.names().await, [""; 0]);
    })
    .await;
}

/// A late relabel and a late write find another node.
#[tokio::test]
async fn a_relabel_and_a_write_that_come_late_spare_the_next_node_of_the_name() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut late = Late::new(server).await;
        let first = create(&late.backend, &late.path, Label::Write).await;
        late.slow_down();
        let relabel = late.backend.relabel(&late.path, &first.node, Label::Read);
        let write = late.backend.write_data(&late.path, &first.node, None, b"late");
        let both = async { tokio::join!(relabel, write) };
        assert!(timeout(Duration::from_millis(100), both).await.is_err());
        // An answer to the delete is needed, or the name would not be used again.
        late.backend.children(&late.path, None).await.unwrap();
        delete(&late.backend, &late.path, &first.node).await;
        let next = create(&late.backend, &late.path, Label::Write).await;
        assert_eq!(next.node.name, first.node.name);
        late.arrived().await;
        let written = value(&late.observer, &key(&late.path, &next.node)).await;
        assert_eq!(written, format!("zlock1 write\nid {}\ndata", next.node.id).as_bytes());
    })
    .await;
}

/// The first attempt at a take-over arrives when another client has taken over.
#[tokio::test]
async fn a_take_over_that_comes_late_spares_its_successor() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut late = Late::new(server).await;
        let other = etcd::backend(&server.connect_string()).await;
        let member = late.path.join("w7").unwrap();
        late.slow_down();
        let joined = late.backend.join(&member, b"old", true).await.unwrap();
        assert!(matches!(joined, Joined::Joined(_)), "{joined:?}");
        let joined = other.join(&member, b"new", true).await.unwrap();
        assert!(matches!(joined, Joined::Joined(_)), "{joined:?}");
        late.arrived().await;
        let (members, _watch) = other.members_with_watch(&late.path).await.unwrap();
        assert_eq!(members.len(), 1);
        assert_eq!(members[0].contents.as_ref().unwrap().data, b"new");
        other.leave(&member).await.unwrap();
    })
    .await;
}

/// The first attempt at a join arrives when the client knows that another one was the member, which has left since.
#[tokio::test]
async fn a_join_that_comes_late_makes_no_member() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut late = Late::new(server).await;
        let other = etcd::backend(&server.connect_string()).await;
        let member = late.path.join("w7").unwrap();
        other.join(&member, b"other", false).await.unwrap();
        late.slow_down();
        let taken = late.backend.join(&member, b"late", false).await.unwrap();
        assert!(matches!(taken, Joined::Taken(_)), "{taken:?}");
        other.leave(&member).await.unwrap();
        late.arrived().await;
        assert_eq!(late.names().await, [""; 0]);
    })
    .await;
}
