//! The lease of a session: granted, kept alive, searched, revoked.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Client, GetOptions, GetResponse, KeyValue, LeaseKeepAliveStream, LeaseKeeper, LeaseTimeToLiveOptions,
    LeaseTimeToLiveResponse, Txn, TxnOp, TxnResponse,
};
use tokio::time::{Instant, timeout};
use zlock_core::kit::{Failure as _, Interrupted, SessionKey, run_on};
use zlock_core::{ErrorKind, Node, NodeId, SessionId};

use crate::connection::connect::{By, Endpoints, kv};
use crate::connection::endpoint::Endpoint;
use crate::error::Failure;
use crate::keys::key::{self, Keys, PlaceName};
use crate::keys::revision::Known;
use crate::requests::txn::gets;
use crate::session::renewal::Answerer;
use crate::session::{Live, Shared, lease_id};

/// The maximum number of reads in a transaction: the server's own limit is 128.
const MAX_READS: usize = 100;

/// A new lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantedLease {
    pub(crate) id: i64,
    /// As granted by the server, which may be more than was requested.
    pub(crate) ttl: Duration,
    /// The time at which the request was sent.
    pub(crate) sent: Instant,
    /// What was known then.
    pub(crate) known: Known,
}

impl GrantedLease {
    /// Returns how long the lease certainly lives after a keep-alive was sent. The margin is for clock drift. A new leader
    /// restarts every lease, so a change of leader needs no margin.
    pub(crate) fn life(&self) -> Duration {
        self.ttl - self.ttl / 50
    }
}

/// Ends a lease, and removes all its keys with it. It is not an error if the lease is already gone.
pub(crate) async fn revoke(endpoints: &Arc<Endpoints>, id: i64, limit: Duration) -> Result<(), Failure> {
    let ask = move |client: Arc<Client>| async move { client.lease_client().revoke(id).await };
    match endpoints.ask(By::Cluster, limit, ask).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.classify().kind == ErrorKind::SessionLost => Ok(()),
        Err(failure) => Err(failure),
    }
}

pub(crate) fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

/// Keeps a lease alive, one answer at a time.
///
/// A member that believes that it is the leader renews leases without asking the others, even when they have elected another
/// leader. It does so right after it was paused, and before 3.4.31 and 3.5.13 for as long as its disk hangs (etcd issue
/// 15247). So an answer counts only between two reads to which the cluster agreed in the same term: a term has one leader,
/// and any later leader restarts every lease.
#[derive(Debug)]
pub(crate) struct Keeper {
    endpoints: Arc<Endpoints>,
    id: i64,
    /// The key that is read to learn the term. It must be readable for us, but need not exist.
    key: String,
    /// The time limit of each answer.
    limit: Duration,
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Stream {
    /// The number of its endpoint.
    number: u64,
    /// The cluster's answer when the endpoint was last asked.
    read: Answerer,
    requests: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// How much a keep-alive must prove.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beat<'a> {
    /// The session is at rest: an answer is enough, without a proof.
    Bare,
    /// The session is at rest, and watches something: the cluster must agree that the member takes part, because a member that
    /// is cut off or whose disk hangs still passes keep-alives on.
    Look,
    /// The session owns nodes: the cluster must agree, and these nodes are looked up.
    Proof(Option<&'a Search>),
}

/// The answer to a keep-alive of a live lease.
#[derive(Debug)]
pub(crate) struct Beaten {
    /// The member that answered, if its term was the same then as when the cluster was asked before.
    pub(crate) by: Option<Answerer>,
    /// The answer to the search.
    pub(crate) found: Option<TxnResponse>,
}

impl Keeper {
    pub(crate) fn new(endpoints: Arc<Endpoints>, id: i64, key: String, limit: Duration) -> Self {
        Keeper { endpoints, id, key, limit, stream: None }
    }

    /// Sends one keep-alive and returns its answer. `None` if the lease is gone. Only an answer proves that the lease lives;
    /// sending a request proves nothing.
    ///
    /// # Cancel safety
    /// If it is dropped before its end, the next one uses a new stream, so that no answer is mistaken for that of another
    /// request.
    pub(crate) async fn beat(&mut self, beat: Beat<'_>) -> Result<Option<Beaten>, Failure> {
        let endpoint = self.endpoints.current();
        let stream = self.stream.take().filter(|stream| stream.number == endpoint.number);
        match self.beat_at(&endpoint, stream, beat).await {
            Ok(Some((stream, beaten))) => {
                self.stream = Some(stream);
                Ok(Some(beaten))
            }
            Ok(None) => Ok(None),
            Err(failure) if failure.classify().kind == ErrorKind::SessionLost => Ok(None),
            Err(failure) => Err(self.endpoints.noted(endpoint.number, failure)),
        }
    }

    async fn beat_at(
        &self,
        endpoint: &Endpoint,
        stream: Option<Stream>,
        beat: Beat<'_>,
    ) -> Result<Option<(Stream, Beaten)>, Failure> {
        let client = self.limited(self.endpoints.client(endpoint)).await?;
        let mut asked = match stream {
            Some(stream) => self.limited(stream.ask()).await?,
            None => {
                let (read, _) = self.limited(self.read(&client, None)).await?;
                // The library does not show which member has answered.
                Some((self.limited(self.open(&client, endpoint.number, read)).await?, None))
            }
        };
        while let Some((mut stream, by)) = asked {
            let known = stream.read;
            let found = match beat {
                // The term is read again only if it has changed.
                Beat::Bare if by.is_none_or(|by: Answerer| by.term == known.term) => None,
                Beat::Bare | Beat::Look => {
                    (stream.read, _) = self.limited(self.read(&client, None)).await?;
                    None
                }
                Beat::Proof(search) => {
                    let found;
                    (stream.read, found) = self.limited(self.read(&client, search)).await?;
                    if stream.read.term != known.term || by.is_some_and(|by| by.term != known.term) {
                        // Repeat until the term is the same before, in between and after. Behind a balancer, a member may answer
                        // that did not answer the reads.
                        asked = self.limited(stream.ask()).await?;
                        continue;
                    }
                    found
                }
            };
            return Ok(Some((stream, Beaten { by: by.filter(|by| *by == known), found })));
        }
        Ok(None)
    }

    async fn limited<T>(&self, answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        timeout(self.limit, answer).await.unwrap_or(Err(Failure::Silent))
    }

    /// Opens a stream, which is also a keep-alive.
    async fn open(&self, client: &Client, number: u64, read: Answerer) -> Result<Stream, Failure> {
        let (requests, answers) = client.lease_client().keep_alive(self.id).await?;
        Ok(Stream { number, read, requests, answers })
    }

    /// Asks the cluster for its term, and for the nodes of a search.
    async fn read(
        &self,
        client: &Client,
        search: Option<&Search>,
    ) -> Result<(Answerer, Option<TxnResponse>), Failure> {
        let history = self.endpoints.history();
        let read = || async {
            let answer = history.check(true, read(client, &self.key)).await?;
            Ok((Answerer::of(answer.header()), None))
        };
        match search {
            None => read().await,
            Some(search) => match history.check(true, kv(client).txn(search.txn())).await {
                Ok(found) => Ok((Answerer::of(found.header()), Some(found))),
                // The server takes fewer operations, or no transaction while its database is full. The session lives all the
                // same.
                Err(failure) if failure.is_of_too_many_operations() || failure.is_of_a_full_database() => {
                    tracing::warn!(?failure, "own nodes that others delete are not noticed");
                    read().await
                }
                Err(failure) => Err(failure),
            },
        }
    }

    /// Waits until the stream breaks, or its server is no longer the current one. Waits forever if there is no stream.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn broken(&mut self) {
        let Some(stream) = &mut self.stream else { return pending().await };
        tokio::select! {
            biased;
            // Nothing was requested, so no answer can arrive.
            _ = stream.answers.message() => {}
            () = self.endpoints.moved_on(stream.number) => {}
        }
    }
}

/// Reads this key to learn the current term. The majority of the members agree to it, including the one that is asked.
pub(crate) async fn read(client: &Client, key: &str) -> Result<GetResponse, etcd_client::Error> {
    kv(client).get(key, Some(GetOptions::new().with_count_only())).await
}

impl Stream {
    /// Returns `None` if the lease is gone.
    async fn ask(mut self) -> Result<Option<(Stream, Option<Answerer>)>, Failure> {
        self.requests.keep_alive().await?;
        match self.answers.message().await? {
            Some(answer) => {
                let by = Answerer::of(answer.header());
                Ok((answer.ttl() > 0).then_some((self, Some(by))))
            }
            None => Err(Failure::Silent),
        }
    }
}

/// Proves at once that the lease lives, with a separate keep-alive, and returns the instant until which it does.
pub(crate) async fn prove(shared: &Shared, lease: SessionKey, live: &Live) -> Result<Instant, Failure> {
    let key = key::fence(shared.options.prefix(), lease.id, 0);
    let limit = shared.options.kit.beat_time();
    let mut keeper = Keeper::new(shared.endpoints.clone(), lease_id(lease), key, limit);
    let sent = Instant::now();
    let prove = async move { keeper.beat(Beat::Proof(None)).await.map(|beaten| beaten.is_some()) };
    // A caller that does not poll must not keep others from the connection while it is made.
    match run_on(&shared.runtime, prove).await {
        Some(Ok(true)) => Ok(sent + live.life),
        Some(Ok(false)) => Err(shared.lost(lease)),
        Some(Err(failure)) => Err(failure),
        None => Err(Interrupted::Closed.into()),
    }
}

/// A search for own nodes that other clients deleted, each by its key.
#[derive(Debug)]
pub(crate) struct Search {
    mark: u64,
    nodes: Vec<(NodeId, Sought)>,
}

/// A key, with what shows that it is still ours.
#[derive(Debug)]
struct Sought {
    key: String,
    is: Is,
}

#[derive(Clone, Copy, Debug)]
enum Is {
    /// Nothing else has the name if the key was created at this revision.
    CreatedAt(i64),
    /// No other session has replaced the member if it was written last at this revision.
    WrittenAt(i64),
}

impl Sought {
    /// Returns what to look for. `None` if the node has no key that is known.
    fn of(live: &Live, session: SessionId, node_id: &NodeId) -> Option<Self> {
        if let Some(revision) = live.members.lock().revision(node_id) {
            return Some(Sought { key: node_id.as_str().to_owned(), is: Is::WrittenAt(revision) });
        }
        let place = live.names.lock().get(node_id)?;
        let key = format!("{}{}", place.prefix, PlaceName::new(session, place.number));
        // A place without a revision is never found.
        Some(Sought { key, is: Is::CreatedAt(place.created.unwrap_or(-1)) })
    }

    fn is_it(&self, kv: &KeyValue) -> bool {
        match self.is {
            Is::CreatedAt(revision) => kv.create_revision() == revision,
            Is::WrittenAt(revision) => kv.mod_revision() == revision,
        }
    }
}

impl Search {
    /// Begins a search for all own nodes. `None` if there are none, or too many for one request: then [`look_through`] finds
    /// them.
    pub(crate) fn begin(shared: &Shared, lease: SessionKey) -> Result<Option<Search>, Failure> {
        let mark = shared.sessions.own().mark();
        shared.contents.retain(shared.sessions.own());
        if shared.sessions.own().is_empty() || shared.sessions.own().len() > MAX_READS {
            return Ok(None);
        }
        let live = shared.live(lease)?;
        let known = shared.sessions.own().missing(mark, &BTreeSet::new());
        let sought = known.into_iter().filter_map(|id| {
            let sought = Sought::of(&live, lease.id, &id)?;
            Some((id, sought)).filter(|(_, sought)| !matches!(sought.is, Is::CreatedAt(-1)))
        });
        let sought: Vec<_> = sought.collect();
        Ok((!sought.is_empty()).then_some(Search { mark, nodes: sought }))
    }

    fn txn(&self) -> Txn {
        let read = |(_, sought): &(NodeId, Sought)| {
            TxnOp::get(sought.key.as_str(), Some(GetOptions::new().with_keys_only()))
        };
        Txn::new().and_then(self.nodes.iter().map(read).collect::<Vec<_>>())
    }

    /// Reports the nodes that do not exist.
    pub(crate) async fn end(
        self,
        shared: &Shared,
        lease: SessionKey,
        answer: &TxnResponse,
    ) -> Result<(), Failure> {
        // The keep-alives wait for it.
        report(shared, lease, self.mark, self.absent(answer), false).await
    }

    fn absent(self, answer: &TxnResponse) -> Vec<NodeId> {
        let is_there =
            |sought: &Sought, get: &GetResponse| get.kvs().first().is_some_and(|kv| sought.is_it(kv));
        let read = self.nodes.into_iter().zip(gets(answer));
        read.filter(|((_, sought), get)| !is_there(sought, get)).map(|((node_id, _), _)| node_id).collect()
    }
}

/// Finds own nodes that other clients deleted if there are too many for a [`Search`]: one request lists all keys of the
/// lease. A missing key is read before it is reported, because the leader that lists may be behind the member that answered
/// our create, and because a key may have been detached from its lease.
pub(crate) async fn look_through(shared: &Shared, lease: SessionKey) -> Result<(), Failure> {
    let mark = shared.sessions.own().mark();
    shared.contents.retain(shared.sessions.own());
    if shared.sessions.own().len() <= MAX_READS {
        return Ok(());
    }
    let live = shared.live(lease)?;
    let listed = list(shared, lease, true).await?;
    let keys = || listed.keys().iter().filter_map(|key| std::str::from_utf8(key).ok());
    let mut present = live.names.lock().with_keys(keys().filter_map(|key| place(lease, key)));
    present.extend(keys().map(NodeId::new));
    let missing = shared.sessions.own().missing(mark, &present);
    let mut gone = Vec::new();
    for some in missing.chunks(MAX_READS) {
        gone.extend(absent(shared, lease, &live, mark, some).await?);
    }
    report(shared, lease, mark, gone, true).await
}

/// Returns the queue and the number of a key that is a place of the session.
fn place(lease: SessionKey, key: &str) -> Option<(&str, u32)> {
    let (prefix, name) = key.split_at(key.rfind('/')? + 1);
    let place = PlaceName::parse(name).filter(|place| place.lease == lease.id)?;
    Some((prefix, place.number))
}

/// Finds places of the session that this client has deleted or never made, which a restore has brought back. They would block
/// their queues for as long as the session is kept alive.
pub(crate) async fn find_unknown(shared: &Shared, lease: SessionKey) -> Result<(), Failure> {
    let (live, prefix) = (shared.live(lease)?, shared.options.prefix());
    let is_unknown = |key: &String| {
        // No path has an empty segment, but fences and receipts do.
        let place = place(lease, key).filter(|(queue, _)| queue.starts_with(prefix) && !queue.contains("//"));
        place.is_some_and(|place| live.names.lock().with_keys(std::iter::once(place)).is_empty())
    };
    let listed = list(shared, lease, false).await?;
    let keys = listed.keys().iter().filter_map(|key| String::from_utf8(key.clone()).ok());
    let mut unknown: Vec<_> = keys.filter(is_unknown).take(MAX_READS).collect();
    let before = created(shared, &unknown).await?;
    // What this client made itself is gone once the name is free. So a key that still exists after that is not its own.
    unknown.retain(is_unknown);
    let after = created(shared, &unknown).await?;
    if let Some((key, _)) = after.intersection(&before).next() {
        shared.endpoints.history().shows_unknown(&String::from_utf8_lossy(key));
    }
    Ok(())
}

/// Returns those of the keys that exist, each with its create revision.
async fn created(shared: &Shared, keys: &[String]) -> Result<BTreeSet<(Vec<u8>, i64)>, Failure> {
    if keys.is_empty() {
        return Ok(BTreeSet::new());
    }
    let get = |key: &String| TxnOp::get(key.as_str(), Some(GetOptions::new().with_keys_only()));
    let txn = Txn::new().and_then(keys.iter().map(get).collect::<Vec<_>>());
    let ask = move |client: Arc<Client>| async move { kv(&client).txn(txn).await };
    let answer = shared.endpoints.ask_out_of_turn(By::Cluster, shared.options.kit.answer_time(), ask).await?;
    let created = |get: &GetResponse| get.kvs().first().map(|kv| (kv.key().to_owned(), kv.create_revision()));
    Ok(gets(&answer).iter().filter_map(created).collect())
}

/// Finds own nodes that are missing from a listing of a queue that was requested after `mark`.
pub(crate) async fn compare(
    shared: &Shared,
    lease: SessionKey,
    mark: u64,
    keys: &Keys,
    kvs: &[KeyValue],
) -> Result<(), Failure> {
    let present = kvs.iter().filter_map(|kv| {
        let place = PlaceName::parse(keys.name(kv.key())?).filter(|place| place.lease == lease.id)?;
        Some((place.number, kv.create_revision()))
    });
    let missing = shared.live(lease)?.names.lock().missing(keys.prefix(), &present.collect());
    if missing.is_empty() {
        return Ok(());
    }
    let mut gone = shared.sessions.own().missing(mark, &BTreeSet::new());
    gone.retain(|node_id| missing.contains(node_id));
    report(shared, lease, mark, gone, true).await
}

/// Handles a node that was looked up and does not exist: if it was an own node, another client deleted it, or the session is
/// over.
pub(crate) async fn missed(shared: &Shared, lease: SessionKey, node: &Node) -> Result<(), Failure> {
    let node_id = node.id.clone();
    // A node of an earlier session may have the ID of one of this session.
    let may_be_own = node.session.is_none_or(|session| session == lease.id);
    if may_be_own && shared.sessions.own().contains(&node_id) {
        report(shared, lease, shared.sessions.own().mark(), vec![node_id], true).await
    } else {
        Ok(())
    }
}

/// Reports own nodes that are certainly gone, unless the lease is gone, since all nodes are removed with it.
async fn report(
    shared: &Shared,
    lease: SessionKey,
    mark: u64,
    gone: Vec<NodeId>,
    in_turn: bool,
) -> Result<(), Failure> {
    if gone.is_empty() {
        return Ok(());
    }
    if list(shared, lease, in_turn).await?.ttl() <= 0 {
        return Err(shared.lost(lease));
    }
    for node_id in gone {
        tracing::warn!(%node_id, "an own node was deleted by another client");
        shared.sessions.own().report_missing(mark, &node_id);
    }
    Ok(())
}

async fn list(shared: &Shared, lease: SessionKey, in_turn: bool) -> Result<LeaseTimeToLiveResponse, Failure> {
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let ask = move |client: Arc<Client>| async move {
        client.lease_client().time_to_live(lease_id(lease), Some(options)).await
    };
    // The leader answers alone, and so does a member that believes that it is the leader.
    let (endpoints, limit) = (&shared.endpoints, shared.options.kit.answer_time());
    match in_turn {
        true => endpoints.ask(By::Member, limit, ask).await,
        false => endpoints.ask_out_of_turn(By::Member, limit, ask).await,
    }
}

/// Returns the nodes that do not exist, with the cluster's agreement.
async fn absent(
    shared: &Shared,
    lease: SessionKey,
    live: &Live,
    mark: u64,
    node_ids: &[NodeId],
) -> Result<Vec<NodeId>, Failure> {
    let (mut absent, mut sought) = (Vec::new(), Vec::new());
    for node_id in node_ids {
        match Sought::of(live, lease.id, node_id) {
            Some(one) => sought.push((node_id.clone(), one)),
            // This client has removed it.
            None => absent.push(node_id.clone()),
        }
    }
    if sought.is_empty() {
        return Ok(absent);
    }
    let search = Search { mark, nodes: sought };
    let txn = search.txn();
    let ask = move |client: Arc<Client>| async move { kv(&client).txn(txn).await };
    let answer = shared.endpoints.ask(By::Cluster, shared.options.kit.answer_time(), ask).await?;
    absent.extend(search.absent(&answer));
    Ok(absent)
}
