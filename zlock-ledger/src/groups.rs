//! Groups: entries with an owner, whose key is the member's name.

use async_trait::async_trait;
use zlock_core::kit::{SessionKey, repeat};
use zlock_core::{
    Groups, Joined, ListedMember, LockPath, MemberContents, NodeId, Registration, Result, Watch,
};

use crate::backend::LedgerBackend;
use crate::ledger::{Cond, Fault, Kind, Ledger, Scope, Tx, Write};
use crate::operation::Operation;

/// The name of a member, and the ID by which the session knows it, beside those of nodes.
struct Member {
    name: String,
    id: NodeId,
}

impl<L: Ledger> LedgerBackend<L> {
    fn member<'a>(&'a self, operation: &'static str, member: &'a LockPath) -> (Operation<'a, L>, Member) {
        let mut operation = self.operation(operation, Kind::Group, member);
        let path = operation.scope.path.to_string();
        let (group, name) = path.rsplit_once('/').unwrap_or(("", &path));
        operation.scope = Scope { kind: Kind::Group, path: group.into() };
        (operation, Member { name: name.to_owned(), id: NodeId::new(&*path) })
    }
}

impl<L: Ledger> Operation<'_, L> {
    async fn join(
        &mut self,
        session: SessionKey,
        member: &Member,
        data: &[u8],
        replaces: bool,
    ) -> Result<Joined, Fault> {
        let key = member.name.clone();
        let when = if replaces { Vec::new() } else { vec![Cond::Missing { key: key.clone() }] };
        let then = vec![Write::Append { key, owned: true, label: None, data: data.to_vec() }];
        let tx = Tx { scope: self.scope.clone(), when, then, read: Vec::new() };
        let (mut outcome, deletion) = self.own(session, &member.id, &member.name, tx).await?;
        let there = match outcome.failed.take() {
            Some((_, found)) => found,
            None => outcome.written.pop().flatten(),
        };
        let there = there.ok_or_else(|| Fault::Unexpected("the answer has no member".into()))?;
        let Some(deletion) = deletion else {
            self.budget.ambiguous = false;
            self.shared.wants(&there.owner.into_iter().collect::<Vec<_>>());
            return Ok(Joined::Taken(there.owner));
        };
        Ok(Joined::Joined(Registration::new(session.id, session.epoch, there.created, deletion)))
    }

    async fn leave(&mut self, session: SessionKey, member: &Member) -> Result<(), Fault> {
        self.shared.live(session)?.known.lock().remove(&member.id);
        let (scope, key) = (self.scope.clone(), member.name.clone());
        let when = vec![Cond::Own { key: key.clone() }];
        let then = vec![Write::Delete { scope: scope.clone(), key }];
        self.transact(session, Tx { scope, when, then, read: Vec::new() }).await.map(drop)
    }
}

#[async_trait]
impl<L: Ledger> Groups for LedgerBackend<L> {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        let (mut operation, member) = self.member("join", member);
        operation.budget.check_size(data)?;
        repeat!(operation.budget, |session| operation.join(session, &member, data, replaces))
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        let (mut operation, member) = self.member("leave", member);
        self.shared.sessions.own().remove(&member.id);
        repeat!(operation.budget, |session| operation.leave(session, &member))
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        let mut operation = self.operation("members_with_watch", Kind::Group, group);
        repeat!(operation.budget, |session| async {
            let (entries, watching) = operation.watch(session, None, true).await?;
            let members = entries.into_iter().map(|entry| {
                let contents = MemberContents::new(entry.data, entry.created, entry.owner);
                ListedMember::new(entry.key, Some(contents))
            });
            Ok::<_, Fault>((members.collect(), operation.fires(session, watching)))
        })
    }
}
