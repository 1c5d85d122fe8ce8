//! Looking at the members of a group, once or for as long as needed.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use zlock_core::{
    CoordinationBackend, FencingToken, LockPath, MemberContents, Mutex, Result, Watch, WatchEvent,
};

use super::owner::owner;
use crate::client::Client;
use crate::view::{Follower, Freshness, Source};

/// The time between two listings of a group that changes all the time.
const PACE: Duration = Duration::from_millis(100);

/// The most members that are read at the same time.
const AT_ONCE: usize = 32;

/// A member of a group.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The ID.
    pub id: String,
    /// What the member says about itself.
    pub payload: Vec<u8>,
    /// The number of its registration, which is larger than that of every earlier member with this ID. So a process that has
    /// taken an ID over has a larger one.
    pub token: FencingToken,
}

/// The members of a group as a [`MembersWatch`] sees them.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembersView {
    /// The members, in the order of their IDs.
    pub members: Vec<Member>,
    /// Whether the members may have changed unnoticed. A view that is stale still shows the members that were seen last.
    pub freshness: Freshness,
}

impl MembersView {
    /// Returns the member with this ID.
    ///
    /// # Examples
    /// See [`MembersWatch`].
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Returns the member that owns a key, such as a shard or a customer, by rendezvous hashing. `None` if there are no members.
    ///
    /// Everybody who sees the same members gets the same owner, in all versions of zlock. When a member leaves, only its own keys
    /// get other owners. For a moment, two processes see different members. So if a key must have one owner at a time, its owner
    /// also acquires a mutex for it.
    ///
    /// # Examples
    /// See [`Client::members`](crate::Client::members).
    #[must_use]
    pub fn owner_of(&self, key: impl AsRef<[u8]>) -> Option<&Member> {
        let ids = self.members.iter().map(|member| member.id.as_str());
        owner(ids, key.as_ref()).and_then(|index| self.members.get(index))
    }
}

/// A view of a group's members that follows their changes. Created by [`Members::watch`](crate::Members::watch).
///
/// It shows the latest members, and may skip earlier ones. It survives reconnections and new sessions. A member that joins costs
/// one read of the group, which on ZooKeeper is followed by one of that member. If the group changes all the time, it is read ten
/// times a second at most. After an interruption, all of it is read again.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::Freshness;
///
/// let workers = client.members("/app/workers")?;
/// let mut watch = workers.watch();
/// assert!(watch.changed().await?.members.is_empty());
/// let me = workers.join("w7", "10.0.0.7:80").await?;
/// let view = watch.changed().await?;
/// assert_eq!(view.freshness, Freshness::Fresh);
/// assert_eq!(view.get("w7").unwrap().payload, b"10.0.0.7:80");
/// # me.leave().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MembersWatch(Follower<Group>);

impl MembersWatch {
    pub(super) fn new(client: &Client, path: &LockPath) -> Self {
        MembersWatch(Follower::new(Group::new(client, path), client.session_events()))
    }

    /// Waits until the view differs from the one that was returned last, and returns it. The first call returns the current
    /// members. The view changes with the members, their payloads, and its [`Freshness`].
    ///
    /// Nothing is followed between two calls, so a view that was returned long ago may be out of date.
    ///
    /// # Errors
    /// [`Closed`](zlock_core::ErrorKind::Closed), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized),
    /// [`Unexpected`](zlock_core::ErrorKind::Unexpected). While no server answers, the view is stale, which is not an error.
    ///
    /// # Cancel safety
    /// Safe: a view that was not returned is returned by the next call.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`MembersWatch`].
    pub async fn changed(&mut self) -> Result<MembersView> {
        let (members, freshness) = self.0.changed().await?;
        Ok(MembersView { members, freshness })
    }
}

/// A group, with what is known of its members.
#[derive(Debug)]
pub(super) struct Group {
    client: Client,
    path: LockPath,
    /// Of members whose contents no listing shows.
    known: BTreeMap<String, MemberContents>,
    armed: Arc<Mutex<Armed>>,
    /// When the group was listed last.
    listed: Option<Instant>,
}

/// The watches of the last listing.
#[derive(Debug, Default)]
struct Armed {
    group: Option<Watch>,
    members: BTreeMap<String, Watch>,
    /// Whether one of them has fired.
    has_fired: bool,
}

impl Group {
    pub(super) fn new(client: &Client, path: &LockPath) -> Self {
        let (client, path) = (client.clone(), path.clone());
        Group { client, path, known: BTreeMap::new(), armed: Arc::default(), listed: None }
    }

    /// Lists the group, and reads what was not known of its members.
    pub(super) async fn read_now(&mut self) -> Result<Vec<Member>> {
        let client = self.client.clone();
        let groups = client.inner().backend();
        self.listed = Some(Instant::now());
        let (listed, watch) = groups.members_with_watch(&self.path).await?;
        {
            let mut armed = self.armed.lock();
            (armed.group, armed.has_fired) = (Some(watch), false);
            armed.members.retain(|name, _| listed.iter().any(|member| member.name == *name));
        }
        let mut members = BTreeMap::new();
        let mut unknown = Vec::new();
        for member in listed {
            match member.contents {
                Some(contents) => drop(members.insert(member.name, contents)),
                None if self.armed.lock().members.contains_key(&member.name) => {
                    if let Some(contents) = self.known.get(&member.name) {
                        members.insert(member.name, contents.clone());
                    }
                }
                None => unknown.push(member.name),
            }
        }
        for names in unknown.chunks(AT_ONCE) {
            for (name, read) in names.iter().zip(self.read_all(groups, names).await) {
                // It has left since, of which the group's watch knows.
                let Some((contents, watch)) = read? else { continue };
                self.armed.lock().members.insert(name.clone(), watch);
                self.known.insert(name.clone(), contents.clone());
                members.insert(name.clone(), contents);
            }
        }
        let armed = self.armed.lock().members.keys().cloned().collect::<Vec<_>>();
        self.known.retain(|name, _| armed.binary_search(name).is_ok());
        // What belongs to no session is no member.
        let members = members.into_iter().filter(|(_, contents)| contents.session.is_some());
        let member = |(id, contents): (String, MemberContents)| {
            let token = FencingToken::new(contents.number);
            Member { id, payload: contents.data, token }
        };
        Ok(members.map(member).collect())
    }

    /// Reads some members at the same time.
    async fn read_all(
        &self,
        groups: &dyn CoordinationBackend,
        names: &[String],
    ) -> Vec<Result<Option<(MemberContents, Watch)>>> {
        let read = |name: &String| {
            let member = self.path.join(name);
            Box::pin(async move {
                // A node that no path can name was not made by a member.
                let Ok(member) = member else { return Ok(None) };
                groups.member_with_watch(&member).await
            })
        };
        let mut reads: Vec<_> = names.iter().map(|name| (read(name), None)).collect();
        poll_fn(|context| {
            let mut is_done = true;
            for (read, result) in reads.iter_mut().filter(|(_, result)| result.is_none()) {
                match read.as_mut().poll(context) {
                    Poll::Ready(read) => *result = Some(read),
                    Poll::Pending => is_done = false,
                }
            }
            if is_done { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        reads.into_iter().filter_map(|(_, result)| result).collect()
    }
}

impl Source for Group {
    type Seen = Vec<Member>;

    async fn read(&mut self) -> Result<(Vec<Member>, Watch)> {
        // Not the first change after a while, but those that follow it.
        let next = self.listed.filter(|_| self.armed.lock().has_fired).map(|listed| listed + PACE);
        if let Some(next) = next {
            sleep_until(next).await;
        }
        let members = self.read_now().await?;
        let armed = self.armed.clone();
        let fired = poll_fn(move |context| armed.lock().poll(context).map(|()| WatchEvent::Changed));
        Ok((members, Watch::new(fired)))
    }

    fn doubt(&mut self) {
        *self.armed.lock() = Armed::default();
    }
}

impl Armed {
    /// Waits until one of the watches fires.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(watch) = &mut self.group
            && is_ready(watch, context)
        {
            self.group = None;
            self.has_fired = true;
        }
        let before = self.members.len();
        self.members.retain(|_, watch| !is_ready(watch, context));
        self.has_fired |= self.members.len() < before;
        if self.has_fired { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn is_ready(watch: &mut Watch, context: &mut Context<'_>) -> bool {
    Pin::new(watch).poll(context).is_ready()
}
