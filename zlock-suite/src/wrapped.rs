//! A backend with something around each of its calls.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;
use zlock_core::{
    Background, Close, Consistency, CoordinationBackend, Created, DataWrite, Deletion, Existence, Groups,
    GuardNode, Head, Joined, Label, ListedMember, LockPath, MemberContents, Needs, Node, NodeData, NodeId,
    Queue, Result, SessionEvents, StoreHistory, Target, Value, Values, Version, Watch, WriteOutcome,
};

/// An operation of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `create_ephemeral_sequential`
    Create,
    /// `children`
    Children,
    /// `children_with_watch`
    ChildrenWithWatch,
    /// `exists_with_watch`
    Exists,
    /// `relabel`
    Relabel,
    /// `delete`
    Delete,
    /// `data`
    Data,
    /// `data_with_watch`
    DataWithWatch,
    /// `head_with_watch`
    HeadWithWatch,
    /// `write_data`
    WriteData,
    /// `join`
    Join,
    /// `leave`
    Leave,
    /// `members_with_watch`
    MembersWithWatch,
    /// `member_with_watch`
    MemberWithWatch,
}

/// What happens around the calls of a [`Wrapped`] backend.
pub(crate) trait Around: Debug + Send + Sync + 'static {
    /// Makes a call, or does something else.
    fn around<T: Send>(
        &self,
        call: Call,
        path: &LockPath,
        inner: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;

    /// Returns `true` if `exists_with_watch` finds no node.
    fn hides_nodes(&self) -> bool {
        false
    }
}

/// A backend whose calls go through an [`Around`].
#[derive(Debug)]
pub(crate) struct Wrapped<A> {
    pub(crate) inner: Arc<dyn CoordinationBackend>,
    pub(crate) around: A,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<A: Around> CoordinationBackend for Wrapped<A> {
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
        needs: Needs,
    ) -> Result<Created> {
        let inner = self.inner.create_ephemeral_sequential(parent, label, node_id, data, needs);
        self.around.around(Call::Create, parent, inner).await
    }

    async fn children(&self, parent: &LockPath, up_to: Option<&Node>) -> Result<Queue> {
        self.around.around(Call::Children, parent, self.inner.children(parent, up_to)).await
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        self.around.around(Call::ChildrenWithWatch, parent, self.inner.children_with_watch(parent)).await
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let inner = async {
            if self.around.hides_nodes() {
                // No answer takes no time.
                sleep(Duration::from_millis(1)).await;
                return Ok(Existence::Deleted);
            }
            self.inner.exists_with_watch(parent, seen).await
        };
        self.around.around(Call::Exists, parent, inner).await
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        self.around.around(Call::Relabel, parent, self.inner.relabel(parent, node, label)).await
    }

    async fn delete(&self, parent: &LockPath, target: &Target, next: Option<&Node>) -> Result<Deletion> {
        self.around.around(Call::Delete, parent, self.inner.delete(parent, target, next)).await
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        self.around.around(Call::Data, parent, self.inner.data(parent, node)).await
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        self.around.around(Call::DataWithWatch, parent, self.inner.data_with_watch(parent, node)).await
    }

    async fn write_data(
        &self,
        parent: &LockPath,
        node: &Node,
        expected: Option<u64>,
        data: &[u8],
    ) -> Result<DataWrite> {
        let inner = self.inner.write_data(parent, node, expected, data);
        self.around.around(Call::WriteData, parent, inner).await
    }

    async fn head_with_watch(&self, parent: &LockPath) -> Result<(Option<Head>, Watch)> {
        self.around.around(Call::HeadWithWatch, parent, self.inner.head_with_watch(parent)).await
    }

    fn history(&self) -> Option<&dyn StoreHistory> {
        self.inner.history()
    }

    fn session_events(&self) -> SessionEvents {
        self.inner.session_events()
    }

    fn background(&self) -> Background {
        self.inner.background()
    }

    async fn close(&self) -> Result<Close> {
        self.inner.close().await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<A: Around> Values for Wrapped<A> {
    async fn value(&self, path: &LockPath, consistency: Consistency) -> Result<Option<Value>> {
        self.inner.value(path, consistency).await
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        self.inner.value_with_watch(path).await
    }

    async fn write_value(
        &self,
        path: &LockPath,
        expected: Option<Version>,
        data: &[u8],
        guard: Option<&GuardNode>,
    ) -> Result<WriteOutcome> {
        self.inner.write_value(path, expected, data, guard).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<A: Around> Groups for Wrapped<A> {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        self.around.around(Call::Join, member, self.inner.join(member, data, replaces)).await
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        self.around.around(Call::Leave, member, self.inner.leave(member)).await
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        self.around.around(Call::MembersWithWatch, group, self.inner.members_with_watch(group)).await
    }

    async fn member_with_watch(&self, member: &LockPath) -> Result<Option<(MemberContents, Watch)>> {
        self.around.around(Call::MemberWithWatch, member, self.inner.member_with_watch(member)).await
    }
}
