//! The groups of the store: rows with names of their members' choice.

use zlock_core::kit::SessionKey;
use zlock_core::{
    ErrorKind, Groups, Joined, ListedMember, LockPath, MemberContents, NodeId, Registration, Result, Watch,
    WatchEvent, async_trait,
};

use crate::backend::ToyBackend;
use crate::server::{Row, Table};

/// Returns the ID of the node of a member: its path.
fn own_id(member: &LockPath) -> NodeId {
    NodeId::new(member.as_str())
}

fn is_member(row: &Row, group: &LockPath) -> bool {
    row.parent == *group && row.session.is_some() && row.label.is_none()
}

fn list(table: &Table, group: &LockPath) -> Vec<ListedMember> {
    let member = |row: &Row| {
        let contents = MemberContents::new(&*row.data, row.created, row.session);
        ListedMember::new(&row.name, Some(contents))
    };
    table.rows.iter().filter(|row| is_member(row, group)).map(member).collect()
}

#[async_trait]
impl Groups for ToyBackend {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        let mut budget = self.shared.budget("join", member);
        budget.check_size(data)?;
        let (Some(group), name) = (member.parent(), member.as_str().rsplit('/').next().unwrap_or_default())
        else {
            return Err(budget.refuse(ErrorKind::InvalidPath).with_message("a member needs a group"));
        };
        // The owner of the row says whose it is, also if the answer to an earlier attempt was lost.
        let join = |table: &mut Table, session: SessionKey| {
            let is_it = |row: &Row| row.parent == group && row.name == name;
            match table.rows.iter().find(|row| is_it(row)) {
                // A row without a session is a value, and one with a label a place in a queue.
                Some(row) if !is_member(row, &group) => return Err(None),
                Some(row) if row.session == Some(session.id) => return Ok(row.created),
                Some(row) if !replaces => return Err(row.session),
                _ => {}
            }
            table.delete(is_it);
            let created = table.next_revision();
            let row = Row::new(created, &group, name, data);
            table.rows.push(Row { session: Some(session.id), ..row });
            Ok(created)
        };
        match self.shared.transaction(&mut budget, true, join).await? {
            (session, Ok(number)) => {
                let deletion = self.shared.sessions.own().insert(&own_id(member));
                Ok(Joined::Joined(Registration::new(session.id, session.epoch, number, deletion)))
            }
            (_, Err(owner)) => Ok(Joined::Taken(owner)),
        }
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        self.shared.sessions.own().remove(&own_id(member));
        let mut budget = self.shared.budget("leave", member);
        let leave = |table: &mut Table, session: SessionKey| {
            let is_own = |row: &Row| row.session == Some(session.id) && row.label.is_none();
            table.delete(|row| is_own(row) && format!("{}/{}", row.parent, row.name) == member.as_str());
        };
        self.shared.transaction(&mut budget, true, leave).await.map(drop)
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        let read = |table: &mut Table| list(table, group);
        let (session, seen) = self.shared.read("members_with_watch", group, read).await?;
        let (group, before) = (group.clone(), seen.clone());
        let look = move |table: &Table| (list(table, &group) != before).then_some(WatchEvent::Changed);
        Ok((seen, self.shared.watch(session, look)))
    }
}
