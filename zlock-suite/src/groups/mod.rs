//! The cases of [`Groups`](zlock_core::Groups), one module for each of its methods. The doc of a case is the bullet that it tests.

pub mod join;
pub mod leave;
pub mod member_with_watch;
pub mod members_with_watch;

use std::collections::BTreeMap;

use zlock_core::{Joined, LockPath, MemberContents, Registration, SessionId, Watch};

use crate::{Case, Connection};

fn member(case: &Case<'_>, name: &str) -> LockPath {
    case.path("group").join(name).expect("the path of a member")
}

async fn try_join(connection: &Connection, member: &LockPath, data: &[u8], replaces: bool) -> Joined {
    connection.join(member, data, replaces).await.expect("join")
}

async fn register(connection: &Connection, member: &LockPath, data: &[u8]) -> Registration {
    match try_join(connection, member, data, false).await {
        Joined::Joined(registration) => registration,
        other => panic!("not joined: {other:?}"),
    }
}

async fn replace(connection: &Connection, member: &LockPath, data: &[u8]) -> Registration {
    match try_join(connection, member, data, true).await {
        Joined::Joined(registration) => registration,
        other => panic!("not replaced: {other:?}"),
    }
}

fn is_taken(joined: &Joined, owner: SessionId) -> bool {
    matches!(joined, Joined::Taken(Some(session)) if *session == owner)
}

async fn remove(connection: &Connection, member: &LockPath) {
    connection.leave(member).await.expect("leave");
}

async fn watch(connection: &Connection, group: &LockPath) -> (Vec<String>, Watch) {
    let (members, watch) = connection.members_with_watch(group).await.expect("members_with_watch");
    let mut names: Vec<_> = members.into_iter().map(|member| member.name).collect();
    names.sort_unstable();
    (names, watch)
}

/// Returns the members of the group with their contents, wherever the store has these.
async fn contents(connection: &Connection, group: &LockPath) -> BTreeMap<String, MemberContents> {
    let (members, _watch) = connection.members_with_watch(group).await.expect("members_with_watch");
    let mut found = BTreeMap::new();
    for member in members {
        let contents = match member.contents {
            Some(contents) => Some(contents),
            None => {
                let path = group.join(&member.name).unwrap();
                let read = connection.member_with_watch(&path).await.expect("member_with_watch");
                read.map(|(contents, _)| contents)
            }
        };
        if let Some(contents) = contents {
            assert!(found.insert(member.name, contents).is_none(), "listed twice");
        }
    }
    found
}
