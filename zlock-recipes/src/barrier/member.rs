//! A member of a barrier, from its arrival until a round has counted it.

use tokio::time::{Instant, timeout, timeout_at};
use zlock_core::{
    Error, ErrorKind, LastFailure, LockPath, NodeId, Queue, Result, SessionState, Value, Version,
    WriteOutcome,
};

use super::rounds::{Round, Rounds, label};
use crate::acquire::Request;
use crate::acquire::place::{Listing, Loss, Place, time_to_create};
use crate::client::Client;
use crate::place::admission::Admitted;
use crate::place::granted::lost_error;
use crate::place::pauses::Pauses;
use crate::queue::{Event, Status, Step, other_max};
use crate::value::{SharedValue, ValueWatch};

/// The most members of a round. Their node IDs are in one value, which all of them read.
pub(super) const MOST: u32 = 1000;

/// Where the members of a barrier meet.
#[derive(Clone, Debug)]
pub(super) struct Meeting {
    pub(super) client: Client,
    pub(super) path: LockPath,
    /// The queue of members.
    pub(super) members: LockPath,
    rounds: SharedValue,
    pub(super) n: u32,
}

impl Meeting {
    pub(super) fn new(client: &Client, path: &str, n: u32) -> Result<Self> {
        let path = LockPath::new(path)?;
        if !(1..=MOST).contains(&n) {
            let message = format!("a barrier for {n} members; there must be at least 1 and at most {MOST}");
            return Err(Error::new(ErrorKind::InvalidArgument, "barrier")
                .with_path(&path)
                .with_message(message));
        }
        let (members, rounds) = (path.join("members")?, client.shared_value(path.join("rounds")?)?);
        Ok(Meeting { client: client.clone(), path, members, rounds, n })
    }

    /// Joins, and waits until a round counts the own node.
    pub(super) async fn pass(&self, deadline: Option<Instant>) -> Result<Passed<'_>> {
        self.client.inner().unless_shut_down(("wait", &self.path), self.until_passed(deadline)).await
    }

    async fn until_passed(&self, deadline: Option<Instant>) -> Result<Passed<'_>> {
        let Some(deadline) = deadline else {
            let mut member = Member::arrive(self, self.ready(None).await?).await?;
            return member.counted().await.map(|round| member.passed(round));
        };
        let last = LastFailure::default();
        let Ok(ready) = timeout_at(deadline, last.observe(self.ready(Some(deadline)))).await else {
            return Err(self.request(Some(deadline)).timed_out("wait", false, last.get()));
        };
        // The time limit does not end this: once the create is sent, a round may count the node.
        let mut member = last.observe(Member::arrive(self, ready?)).await?;
        let counted = match timeout_at(deadline, last.observe(member.counted())).await {
            Ok(counted) => counted,
            // Only a write settles whether a round has counted it.
            Err(_) => {
                let limit = self.client.inner().response_timeout;
                let withdrawn = timeout(limit, member.withdraw(last.get())).await;
                withdrawn.unwrap_or_else(|_| Err(self.unsettled(last.get())))
            }
        };
        counted.map(|round| member.passed(round))
    }

    /// Waits until a create may be sent, and reads the rounds. Writes nothing.
    async fn ready(&self, deadline: Option<Instant>) -> Result<Ready> {
        let mut watch = self.rounds.watch();
        let value = watch.changed().await?.value;
        let admitted = time_to_create(self.request(deadline)).await?;
        Ok(Ready { watch, value, admitted })
    }

    /// The error of a member whose node is now removed in the background.
    fn unsettled(&self, last: Option<Error>) -> Error {
        let message = "the time is over, and a round may have counted the member: the store has not answered";
        let error = Error::new(ErrorKind::Unavailable, "wait").with_path(&self.path).with_message(message);
        let error = error.ambiguous();
        match last {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }

    fn request(&self, deadline: Option<Instant>) -> Request<'_> {
        let client = self.client.inner();
        let (path, data) = (&self.members, &client.node_data);
        Request { client, path, label: label(self.n), shared_max: None, data, metric_name: None, deadline }
    }
}

/// A member that a round has counted. Its node is removed when this is dropped.
pub(super) struct Passed<'a> {
    pub(super) place: Place<'a>,
    pub(super) round: Round,
}

/// What a member has before it creates its node.
struct Ready {
    watch: ValueWatch,
    /// The rounds, read before the create, whose listing is thus a later one. That is what a round may open by.
    value: Option<Value>,
    admitted: Admitted,
}

/// A member whose node is in the queue.
struct Member<'a> {
    meeting: &'a Meeting,
    place: Place<'a>,
    watch: ValueWatch,
    rounds: Rounds,
    version: Option<Version>,
    /// The members, as listed after this version of the rounds was read. `None` if they are too few.
    queue: Option<Queue>,
}

impl<'a> Member<'a> {
    async fn arrive(meeting: &'a Meeting, Ready { watch, value, admitted }: Ready) -> Result<Self> {
        let request = meeting.request(None);
        let mut place = Place::create(admitted, request, Listing::Always).await?;
        let queue = match place.first_event() {
            Some(Event::Listed(queue)) => queue,
            _ => Queue::linear([place.node().clone()].into()),
        };
        if let Some(other) = other_max(&queue, request.label) {
            let message =
                format!("the barrier has {} members here, and {other} for the first of them", meeting.n);
            let mismatch = Error::new(ErrorKind::PermitLimitMismatch, "wait").with_path(&meeting.path);
            return Err(mismatch.with_message(message));
        }
        let (rounds, version) = (Rounds::default(), None);
        let mut member = Member { meeting, place, watch, rounds, version, queue: Some(queue) };
        member.saw(value)?;
        Ok(member)
    }

    fn passed(self, round: Round) -> Passed<'a> {
        Passed { place: self.place, round }
    }

    fn id(&self) -> &NodeId {
        &self.place.node().id
    }

    /// Waits until a round has counted the node. Opens a round if enough members are waiting: the last one to arrive lists all
    /// of them, so no other member has to look again.
    async fn counted(&mut self) -> Result<Round> {
        let (mut loss, mut pauses) = (Loss::default(), Pauses::default());
        loop {
            if let Some(round) = self.rounds.of(self.id()) {
                return Ok(round.clone());
            }
            self.check()?;
            let next = self.queue.as_ref().and_then(|queue| self.rounds.open(queue, self.meeting.n));
            let Some(next) = next else {
                self.queue = None;
                tokio::select! {
                    biased;
                    () = self.place.lost(&mut loss) => {}
                    view = self.watch.changed() => {
                        let view = view?;
                        self.saw(view.value)?;
                    }
                }
                continue;
            };
            let session = &self.meeting.client.inner().session;
            if session.current().state == SessionState::Connected {
                match self.write(next).await {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => pauses.after(error, &self.meeting.path, session).await?,
                }
            }
            // Members that were listed may be gone by now. Waits for the connection.
            let listed = self.place.ask_until_answered(Step::List, &mut loss).await?;
            self.queue = if let (Event::Listed(queue), _) = listed { Some(queue) } else { None };
        }
    }

    /// Gives up waiting. Returns the round that has counted the node nevertheless, or the error that the time is over.
    ///
    /// A listing after the relabel does not count the node. One from before it opens a round only over a version that was read before
    /// it. So any write over a version from after the relabel settles the matter, whoever makes it: members that give up together do
    /// not have to take turns.
    async fn withdraw(&mut self, last: Option<Error>) -> Result<Round> {
        self.place.mark_granted(true, &mut Loss::default()).await?;
        // The version that is known may be from before the relabel. That of a conflict is not.
        let mut is_known_since = false;
        loop {
            if let Some(round) = self.rounds.of(self.id()) {
                return Ok(round.clone());
            }
            self.check()?;
            let opened = self.rounds.opened;
            let is_written = self.write(self.rounds.clone()).await?;
            // A round that was opened may have counted a node that is gone by now, and no longer show it.
            if is_written || (is_known_since && self.rounds.opened == opened) {
                return Err(self.meeting.request(None).timed_out("wait", true, last));
            }
            is_known_since = true;
        }
    }

    fn check(&self) -> Result<()> {
        match self.place.status() {
            Status::Live => Ok(()),
            reason => Err(lost_error(reason, "wait", &self.meeting.path)),
        }
    }

    /// Writes the rounds, if the own node is still there. Returns `false` if another member has written them.
    async fn write(&mut self, next: Rounds) -> Result<bool> {
        let values = self.meeting.rounds.values();
        let (path, guard) = (self.meeting.rounds.path(), self.place.guard());
        match values.write_value(path, self.version, next.text().as_bytes(), Some(&guard)).await? {
            WriteOutcome::Written(version) => {
                (self.rounds, self.version) = (next, Some(version));
                Ok(true)
            }
            WriteOutcome::Conflict(now) => self.saw(now).map(|()| false),
            WriteOutcome::GuardGone => {
                self.check()?;
                Err(lost_error(Status::NodeDeleted, "wait", &self.meeting.path))
            }
            _ => Err(Error::new(ErrorKind::Unexpected, "wait").with_path(path)),
        }
    }

    fn saw(&mut self, value: Option<Value>) -> Result<()> {
        self.version = value.as_ref().map(|value| value.version);
        self.rounds = match value {
            None => Rounds::default(),
            Some(value) => Rounds::parse(&value.data, self.meeting.rounds.path())?,
        };
        Ok(())
    }
}
