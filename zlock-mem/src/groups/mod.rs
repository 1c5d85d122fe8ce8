//! Groups, on the mem server.

mod server;

use async_trait::async_trait;
use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{
    Groups, Joined, ListedMember, LockPath, MemberContents, NodeId, NodeName, Registration, Result, Watch,
};

use crate::armed::Arming;
use crate::backend::MemBackend;
use crate::error::Failure;
use crate::operation::Operation;
use crate::request::{Answer, Request};
use crate::tree::{Owner, split};

#[async_trait]
impl Groups for MemBackend {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        let mut operation = self.operation("join", member);
        operation.budget.check_size(data)?;
        loop {
            let (session, sent) = (operation.budget.session().await?, Instant::now());
            let request = Request::Join { member: member.clone(), data: data.to_vec(), replaces };
            let registered = match operation.ask_in(session, request).await {
                Ok(Answer::Joined(number)) => registered(&operation, session, number, sent),
                Ok(Answer::Taken(owner)) => return operation.budget.finish(Ok(Joined::Taken(owner))),
                Ok(answer) => return Err(operation.unexpected(&answer)),
                Err(failure) => Err(failure),
            };
            match registered {
                Ok(registration) => return operation.budget.finish(Ok(Joined::Joined(registration))),
                Err(failure) => operation.budget.retry(failure).await?,
            }
        }
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        let mut operation = self.operation("leave", member);
        self.shared.sessions.own().remove(&NodeId::new(member.as_str()));
        match operation.ask(|| Request::Leave { member: member.clone() }).await?.1 {
            Answer::Done | Answer::NoNode => Ok(()),
            answer => Err(operation.unexpected(&answer)),
        }
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        let mut operation = self.operation("members_with_watch", group);
        let mut armed = Arming::default();
        let request =
            || Request::List { parent: group.clone(), watcher: Some(armed.renew(&self.shared.server)) };
        let (session, children) = match operation.ask(request).await? {
            (session, Answer::Children(children)) => (session, children),
            (_, answer) => return Err(operation.unexpected(&answer)),
        };
        let members = children.iter().filter(|child| {
            matches!(child.owner, Owner::Session(_)) && NodeName::parse(&child.name).is_none()
        });
        let members = members.map(|child| ListedMember::new(&*child.name, None)).collect();
        Ok((members, armed.watch(&self.shared, session)))
    }

    async fn member_with_watch(&self, member: &LockPath) -> Result<Option<(MemberContents, Watch)>> {
        let mut operation = self.operation("member_with_watch", member);
        let mut armed = Arming::default();
        let Some(group) = member.parent() else { return Ok(None) };
        let (_, name) = split(member.as_str());
        let request = || {
            let watcher = Some(armed.renew(&self.shared.server));
            Request::Data { parent: group.clone(), name: name.into(), watcher }
        };
        match operation.ask(request).await? {
            (session, Answer::Data(node)) => {
                let number = node.fencing_token.map_or(0, |token| token.number());
                let contents = MemberContents::new(node.data, number, node.session);
                Ok(Some((contents, armed.watch(&self.shared, session))))
            }
            (_, Answer::NoNode) => Ok(None),
            (_, answer) => Err(operation.unexpected(&answer)),
        }
    }
}

/// Adds the member, whose join was sent at this instant and answered: from here on, the backend reports its deletion.
fn registered(
    operation: &Operation<'_>,
    session: SessionKey,
    number: u64,
    sent: Instant,
) -> Result<Registration, Failure> {
    let (sessions, options) = (&operation.shared.sessions, &operation.shared.options);
    let id = NodeId::new(operation.budget.path().as_str());
    let deletion = sessions.insert_own(session, &id, sent + options.certain())?;
    Ok(Registration::new(session.id, session.epoch, number, deletion))
}
