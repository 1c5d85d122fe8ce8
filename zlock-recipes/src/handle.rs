//! What the handles of all locks have in common.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{Label, LockPath, Result};

use crate::client::{Client, check_node_data};
use crate::guard::Guard;
use crate::participants::{Participant, participants};
use crate::queue::{Request, acquire, acquire_within, try_acquire};
use crate::scope::Scope;

/// A path on a client, and the data of the nodes to make there. Which lock it is the label of each call says.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    client: Client,
    path: LockPath,
    node_data: Arc<[u8]>,
}

impl Handle {
    pub(crate) fn new(client: &Client, path: impl AsRef<str>) -> Result<Self> {
        let path = LockPath::new(path)?;
        Ok(Handle { client: client.clone(), path, node_data: client.inner().node_data.clone() })
    }

    pub(crate) fn with_node_data(mut self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.node_data = check_node_data(data.into())?;
        Ok(self)
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    /// Whether it is the same path of the same client's session.
    pub(crate) fn is_same(&self, other: &Handle) -> bool {
        self.path == other.path && self.client.inner().session.is_same(&other.client.inner().session)
    }

    pub(crate) async fn acquire(&self, label: Label) -> Result<Guard> {
        match Scope::reenter(self.client.inner(), &self.path, label) {
            Some(guard) => guard,
            None => acquire(self.request(label)).await,
        }
    }

    pub(crate) async fn acquire_timeout(&self, label: Label, time: Duration) -> Result<Guard> {
        match Scope::reenter(self.client.inner(), &self.path, label) {
            Some(guard) => guard,
            None => acquire_within(self.request(label), time).await,
        }
    }

    pub(crate) async fn try_acquire(&self, label: Label) -> Result<Option<Guard>> {
        match Scope::reenter(self.client.inner(), &self.path, label) {
            Some(guard) => guard.map(Some),
            None => try_acquire(self.request(label)).await,
        }
    }

    pub(crate) fn is_acquired(&self, label: Label) -> bool {
        self.client.inner().is_held(&self.path, label)
    }

    pub(crate) async fn participants(&self) -> Result<Vec<Participant>> {
        participants(&self.client, &self.path).await
    }

    pub(crate) async fn request_revocation(&self) -> Result<usize> {
        crate::revocation::request(&self.client, &self.path).await
    }

    fn request(&self, label: Label) -> Request<'_> {
        Request { client: self.client.inner(), path: &self.path, label, data: &self.node_data }
    }
}
