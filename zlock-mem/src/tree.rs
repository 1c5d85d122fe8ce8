//! The nodes of the store: their places, owners and next numbers. No time and no waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zlock_core::{NodeName, SessionId};

/// A tree of nodes, named by their full paths (`/app/orders/..`). The root is not a node.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Entry>,
    of_session: BTreeMap<SessionId, BTreeSet<(String, String)>>,
    /// Containers that have lost their last child. Containers that never had a child are not included.
    emptied: BTreeSet<String>,
    /// The number of the first child of a new parent.
    first_sequence: i32,
}

/// The reason why a node exists, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A parent, which is removed when it has become empty.
    Container,
    /// Created directly, and kept until it is removed directly.
    Nobody,
    /// Removed with this session.
    Session(SessionId),
}

impl Owner {
    pub(crate) fn session(self) -> Option<SessionId> {
        if let Owner::Session(session) = self { Some(session) } else { None }
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) owner: Owner,
    pub(crate) data: Vec<u8>,
    /// The number of writes of the data since it was created.
    pub(crate) writes: u64,
    /// The number of the transaction that created it. A rename keeps it.
    pub(crate) transaction: u64,
    /// By name: the owner and the transaction.
    children: BTreeMap<Arc<str>, (Owner, u64)>,
    next_sequence: i32,
}

/// A child as shown by a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) name: Arc<str>,
    pub(crate) owner: Owner,
    pub(crate) transaction: u64,
}

impl AsRef<str> for Child {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// A change of the child `name` of `parent`, for its watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Created,
    Deleted,
    Renamed,
    Written,
}

impl Tree {
    pub(crate) fn set_first_sequence(&mut self, number: i32) {
        self.first_sequence = number;
    }

    pub(crate) fn has_child(&self, parent: &str, name: &str) -> bool {
        self.nodes.get(parent).is_some_and(|p| p.children.contains_key(name))
    }

    /// Returns the children in the order of their names. Empty for a missing parent.
    pub(crate) fn children(&self, parent: &str) -> Vec<Child> {
        let Some(entry) = self.nodes.get(parent) else { return Vec::new() };
        let children = entry.children.iter();
        children
            .map(|(name, &(owner, transaction))| Child { name: name.clone(), owner, transaction })
            .collect()
    }

    pub(crate) fn get(&self, parent: &str, name: &str) -> Option<&Entry> {
        self.nodes.get(&join(parent, name))
    }

    /// Replaces the data of a child. `None` if it does not exist.
    pub(crate) fn set_data(&mut self, parent: &str, name: &str, data: Vec<u8>) -> Option<Vec<Change>> {
        let entry = self.nodes.get_mut(&join(parent, name))?;
        entry.data = data;
        entry.writes += 1;
        Some(vec![change(parent, name, What::Written)])
    }

    /// Returns every path, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Returns the names of a session's nodes, with their parents.
    pub(crate) fn of_session(&self, session: SessionId) -> impl Iterator<Item = &(String, String)> {
        self.of_session.get(&session).into_iter().flatten()
    }

    /// Returns `true` if the node at this path, or one above it, is removed with a session.
    pub(crate) fn ends_with_a_session(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let owners = ends.filter_map(|end| self.nodes.get(&path[..end])).map(|entry| entry.owner);
        owners.into_iter().any(|owner| matches!(owner, Owner::Session(_)))
    }

    /// Creates the missing nodes of this path as containers.
    pub(crate) fn make_containers(&mut self, path: &str, transaction: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
        // The root is not a node.
        for end in ends.filter(|end| *end > 0) {
            let (parent, name) = split(&path[..end]);
            changes.extend(self.insert(parent, name, Owner::Container, Vec::new(), transaction));
        }
        changes
    }

    /// Appends `<prefix><sequence>`. `None` if there is no parent.
    pub(crate) fn append(
        &mut self,
        parent: &str,
        prefix: &str,
        owner: SessionId,
        data: Vec<u8>,
        transaction: u64,
    ) -> Option<(String, Vec<Change>)> {
        let sequence = self.nodes.get(parent)?.next_sequence;
        let name = zlock_core::Sequence::new(sequence.into()).appended_to(prefix);
        let changes = self.insert(parent, &name, Owner::Session(owner), data, transaction);
        Some((name, changes))
    }

    /// Creates one child, unless it exists. The parent must exist or be the root.
    pub(crate) fn insert(
        &mut self,
        parent: &str,
        name: &str,
        owner: Owner,
        data: Vec<u8>,
        transaction: u64,
    ) -> Vec<Change> {
        let path = join(parent, name);
        if self.nodes.contains_key(&path) {
            return Vec::new();
        }
        if let Owner::Session(session) = owner {
            self.of_session.entry(session).or_default().insert((parent.into(), name.into()));
        }
        let (children, next_sequence) = (BTreeMap::new(), self.first_sequence);
        self.nodes.insert(path, Entry { owner, data, writes: 0, transaction, children, next_sequence });
        self.emptied.remove(parent);
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.children.insert(name.into(), (owner, transaction));
            // ZooKeeper counts every create under a parent, not only sequential ones.
            parent.next_sequence = parent.next_sequence.wrapping_add(1);
        }
        vec![change(parent, name, What::Created)]
    }

    /// Renames a child, which keeps its place. `None` if it does not exist, or if the new name is taken.
    pub(crate) fn rename(&mut self, parent: &str, from: &str, to: &str) -> Option<Vec<Change>> {
        if from == to {
            return self.has_child(parent, from).then(Vec::new);
        }
        if self.has_child(parent, to) {
            return None;
        }
        let entry = self.nodes.remove(&join(parent, from))?;
        if let Owner::Session(session) = entry.owner {
            let own = self.of_session.entry(session).or_default();
            own.remove(&(parent.into(), from.into()));
            own.insert((parent.into(), to.into()));
        }
        let known = (entry.owner, entry.transaction);
        self.nodes.insert(join(parent, to), entry);
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.children.remove(from);
            parent.children.insert(to.into(), known);
            parent.next_sequence = parent.next_sequence.wrapping_add(1);
        }
        Some(vec![change(parent, from, What::Renamed), change(parent, to, What::Created)])
    }

    /// Removes a child and everything below it. `None` if it does not exist.
    pub(crate) fn remove(&mut self, parent: &str, name: &str) -> Option<Vec<Change>> {
        let path = join(parent, name);
        let below: Vec<_> = self.nodes.get(&path)?.children.keys().cloned().collect();
        let mut changes: Vec<_> = below.iter().filter_map(|n| self.remove(&path, n)).flatten().collect();
        let entry = self.nodes.remove(&path)?;
        if let Owner::Session(session) = entry.owner
            && let Some(own) = self.of_session.get_mut(&session)
        {
            own.remove(&(parent.into(), name.into()));
        }
        self.emptied.remove(&path);
        if let Some(entry) = self.nodes.get_mut(parent) {
            entry.children.remove(name);
            if entry.owner == Owner::Container && entry.children.is_empty() {
                self.emptied.insert(parent.into());
            }
        }
        changes.push(change(parent, name, What::Deleted));
        Some(changes)
    }

    /// Removes every node of a session.
    pub(crate) fn end_session(&mut self, session: SessionId) -> Vec<Change> {
        let own = self.of_session.remove(&session).unwrap_or_default();
        own.iter().filter_map(|(parent, name)| self.remove(parent, name)).flatten().collect()
    }

    /// Returns `true` if [`reap`](Self::reap) would remove anything.
    pub(crate) fn can_reap(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// Removes the containers that have become empty, and those that become empty by that.
    pub(crate) fn reap(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(path) = self.emptied.pop_first() {
            let (parent, name) = split(&path);
            changes.extend(self.remove(parent, name).unwrap_or_default());
        }
        changes
    }

    /// Removes this path if it is an empty container, even if it never had a child.
    pub(crate) fn reap_one(&mut self, path: &str) -> Vec<Change> {
        let empty = |e: &Entry| e.owner == Owner::Container && e.children.is_empty();
        if !self.nodes.get(path).is_some_and(empty) {
            return Vec::new();
        }
        let (parent, name) = split(path);
        self.remove(parent, name).unwrap_or_default()
    }
}

impl Child {
    pub(crate) fn is_of(&self, session: SessionId) -> bool {
        self.owner == Owner::Session(session)
    }

    /// Returns `true` if its name contains this ID.
    pub(crate) fn has_id(&self, node_id: &zlock_core::NodeId) -> bool {
        NodeName::parse(&self.name).is_some_and(|parsed| parsed.id == *node_id)
    }
}

fn change(parent: &str, name: &str, what: What) -> Change {
    Change { parent: parent.into(), name: name.into(), what }
}

fn join(parent: &str, name: &str) -> String {
    [parent, "/", name].concat()
}

/// Returns the parent and the name. The parent of a first segment is the empty string.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: SessionId = SessionId::new(1);

    fn names(tree: &Tree, parent: &str) -> Vec<String> {
        tree.children(parent).into_iter().map(|c| c.name.to_string()).collect()
    }

    #[test]
    fn numbers_count_every_create_and_wrap() {
        let mut tree = Tree::default();
        tree.set_first_sequence(i32::MAX - 1);
        assert_eq!(tree.append("/a", "lock-", S, vec![], 1), None);
        tree.make_containers("/a", 1);
        for expected in ["lock-2147483646", "lock-2147483647", "lock--2147483648"] {
            assert_eq!(tree.append("/a", "lock-", S, vec![], 2).unwrap().0, expected);
        }
        tree.insert("/a", "by-hand", Owner::Nobody, vec![], 3);
        assert_eq!(tree.append("/a", "lock-", S, vec![], 4).unwrap().0, "lock--2147483646");
    }

    #[test]
    fn a_session_takes_its_nodes_along_under_their_new_names_too() {
        let mut tree = Tree::default();
        tree.make_containers("/a/b", 1);
        let (w, _) = tree.append("/a/b", "w-", S, vec![1], 2).unwrap();
        tree.append("/a/b", "x-", SessionId::new(2), vec![], 3);
        let changes = tree.rename("/a/b", &w, "r-0000000000").unwrap();
        assert_eq!(
            changes,
            [change("/a/b", &w, What::Renamed), change("/a/b", "r-0000000000", What::Created)]
        );
        assert_eq!(tree.children("/a/b")[0].transaction, 2);
        let node = tree.get("/a/b", "r-0000000000").unwrap();
        assert_eq!((&*node.data, node.owner), (&[1][..], Owner::Session(S)));
        assert_eq!(tree.rename("/a/b", &w, "other"), None);
        assert_eq!(tree.end_session(S), [change("/a/b", "r-0000000000", What::Deleted)]);
        assert_eq!(names(&tree, "/a/b"), ["x-0000000001"]);
    }

    #[test]
    fn only_used_and_empty_containers_are_reaped() {
        let mut tree = Tree::default();
        tree.make_containers("/a/b", 1);
        assert!(!tree.can_reap(), "b waits for its first child");
        let (name, _) = tree.append("/a/b", "lock-", S, vec![], 2).unwrap();
        assert!(!tree.can_reap());
        tree.remove("/a/b", &name);
        assert!(tree.can_reap());
        tree.reap();
        assert_eq!(tree.paths().count(), 0);
    }

    #[test]
    fn removing_takes_what_is_below() {
        let mut tree = Tree::default();
        tree.make_containers("/a/b", 1);
        tree.append("/a/b", "lock-", S, vec![], 2);
        let changes = tree.remove("/a", "b").unwrap();
        assert_eq!(changes.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["lock-0000000000", "b"]);
        assert_eq!(tree.of_session(S).count(), 0);
        assert_eq!(tree.remove("/a", "b"), None);
    }
}
