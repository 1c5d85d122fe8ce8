//! The names of the session's places.
//!
//! etcd's index keeps every name ever used until it is compacted, and a listing visits them all. So a session reuses its
//! names: on a path, it has as many as it had places there at the same time, and earlier acquisitions cost nothing.
//!
//! A name belongs to one create at a time. It is taken before the create is sent, and freed when a delete of the node
//! is answered, whatever the response, or when the create has certainly failed. A name whose delete was abandoned stays
//! taken until a later delete is answered, or for the rest of the session. So does a name with a delete in flight that
//! could still take effect, since there may be several at once.
//!
//! The first delete of a node is plain: it compares nothing, so the request is smaller. Without an answer, it may arrive at
//! any later time and remove whichever node has the name by then. So such a name is never used again in the session, and all
//! further deletes of the node compare its create revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zlock_core::NodeId;

/// The maximum number of plain deletes of a session without an answer. Each may keep a name, and that is memory.
const MAX_PLAIN: usize = 1000;

/// The names that a session uses at present, which a model checker runs as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Names {
    places: BTreeMap<NodeId, NamedPlace>,
    /// Only contains paths on which a number is used, or never to be used again.
    paths: BTreeMap<Arc<str>, Numbers>,
    /// The number of plain deletes without an answer.
    plain: usize,
}

/// A node's place in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedPlace {
    /// The common prefix of the keys of its queue.
    pub prefix: Arc<str>,
    /// The number that is its name.
    pub number: u32,
    /// The revision at which the node was created, if that is known.
    pub created: Option<i64>,
    /// The latest fence carried by a delete that voids creates of the node. `None` if there was no such delete.
    voided: Option<i64>,
    /// Whether a plain delete was sent that was not answered.
    is_plain_unanswered: bool,
}

/// The numbers of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Numbers {
    used: BTreeMap<u32, Use>,
    /// The numbers that were used before and are free again.
    free: BTreeSet<u32>,
    /// The first number that was never used.
    next: u32,
    /// Whether a number must never be used again.
    is_spoiled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Use {
    node_id: NodeId,
    /// As in its [`NamedPlace`]. A listing is compared with all nodes of its path.
    created: Option<i64>,
}

impl Numbers {
    fn take(&mut self, node_id: &NodeId) -> u32 {
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.used.insert(number, Use { node_id: node_id.clone(), created: None });
        number
    }
}

impl Names {
    /// Returns the number of the node with this ID in the queue whose keys begin with `prefix`: its current number, or else
    /// the smallest that is free.
    pub fn take(&mut self, prefix: &str, node_id: &NodeId) -> u32 {
        if let Some(place) = self.places.get(node_id) {
            return place.number;
        }
        let prefix: Arc<str> =
            self.paths.get_key_value(prefix).map_or_else(|| prefix.into(), |(known, _)| known.clone());
        let number = self.paths.entry(prefix.clone()).or_default().take(node_id);
        let place = NamedPlace { prefix, number, created: None, voided: None, is_plain_unanswered: false };
        self.places.insert(node_id.clone(), place);
        number
    }

    /// Gives the node another number because another client has a key of that name. The old number is not used again
    /// until all places of the path are free.
    pub fn take_another(&mut self, node_id: &NodeId) {
        if let Some(place) = self.places.get_mut(node_id)
            && let Some(numbers) = self.paths.get_mut(&place.prefix)
        {
            numbers.used.remove(&place.number);
            place.number = numbers.take(node_id);
        }
    }

    /// Records the revision at which the node was created.
    pub fn created(&mut self, node_id: &NodeId, revision: i64) {
        let Some(place) = self.places.get_mut(node_id) else { return };
        place.created = Some(revision);
        let numbers = self.paths.get_mut(&place.prefix);
        if let Some(used) = numbers.and_then(|numbers| numbers.used.get_mut(&place.number)) {
            used.created = place.created;
        }
    }

    /// Returns the place of the node with this ID.
    pub fn get(&self, node_id: &NodeId) -> Option<NamedPlace> {
        self.places.get(node_id).cloned()
    }

    /// Records that a delete is about to be sent that voids creates of the node if this is the fence. Returns `false` if
    /// another delete was answered meanwhile, since the name may be another node's.
    pub fn begin_voiding(&mut self, node_id: &NodeId, fence: i64) -> bool {
        let Some(place) = self.places.get_mut(node_id) else { return false };
        place.voided = place.voided.max(Some(fence));
        true
    }

    /// Records that a plain delete of the node that was created at this revision is about to be sent. Returns `false` if that
    /// delete must compare the revision, because another one was sent before or too many are without an answer.
    pub fn begin_plain(&mut self, node_id: &NodeId, created: i64) -> bool {
        let Some(place) = self.places.get_mut(node_id) else { return false };
        let is_first = place.created == Some(created) && place.voided.is_none() && !place.is_plain_unanswered;
        let is_plain = is_first && self.plain < MAX_PLAIN;
        if is_plain {
            place.is_plain_unanswered = true;
            self.plain += 1;
        }
        is_plain
    }

    /// Records that the plain delete of the node was answered, or will never take effect.
    pub fn end_plain(&mut self, node_id: &NodeId) {
        let place = self.places.get_mut(node_id).filter(|place| place.is_plain_unanswered);
        if let Some(place) = place {
            place.is_plain_unanswered = false;
            self.plain -= 1;
        }
    }

    /// Frees the name of a node whose creates were voided by raising the fence to this revision. The name stays taken if a
    /// delete in flight carries this fence or a later one, because that delete may still take effect.
    pub fn end_voiding(&mut self, node_id: &NodeId, raised: i64) {
        let is_over = |place: &NamedPlace| place.created.is_none() && place.voided < Some(raised);
        if self.places.get(node_id).is_some_and(is_over) {
            self.remove(node_id);
        }
    }

    /// Frees the name of a node that was created at this revision, or whose create has failed. The name stays taken if the
    /// recorded revision differs, or if a delete that voids the node's creates was sent meanwhile. It is never used again if a
    /// plain delete has no answer.
    pub fn free(&mut self, node_id: &NodeId, created: Option<i64>) {
        let is_it = |place: &NamedPlace| place.created == created && place.voided.is_none();
        if self.places.get(node_id).is_some_and(is_it) {
            self.remove(node_id);
        }
    }

    /// Returns the ID of the node that has this number in this queue, and was created at this revision.
    pub fn find(&self, prefix: &str, number: u32, created: i64) -> Option<NodeId> {
        let used = self.paths.get(prefix)?.used.get(&number)?;
        (used.created == Some(created)).then(|| used.node_id.clone())
    }

    /// Returns the IDs of nodes whose keys are in a list: prefixes and numbers.
    pub fn with_keys<'a>(&self, keys: impl Iterator<Item = (&'a str, u32)>) -> BTreeSet<NodeId> {
        let find =
            |(prefix, number): (&str, u32)| Some(self.paths.get(prefix)?.used.get(&number)?.node_id.clone());
        keys.filter_map(find).collect()
    }

    /// Returns the IDs of the nodes of this queue that were created and are not `present`: numbers, with the revisions
    /// at which those were created.
    pub fn missing(&self, prefix: &str, present: &BTreeMap<u32, i64>) -> BTreeSet<NodeId> {
        let Some(numbers) = self.paths.get(prefix) else { return BTreeSet::new() };
        let is_missing = |(number, used): &(&u32, &Use)| {
            used.created.is_some() && used.created.as_ref() != present.get(number)
        };
        numbers.used.iter().filter(is_missing).map(|(_, used)| used.node_id.clone()).collect()
    }

    fn remove(&mut self, node_id: &NodeId) {
        let Some(NamedPlace { prefix, number, is_plain_unanswered, .. }) = self.places.remove(node_id) else {
            return;
        };
        let Some(numbers) = self.paths.get_mut(&prefix) else { return };
        numbers.used.remove(&number);
        if is_plain_unanswered {
            numbers.is_spoiled = true;
        } else {
            numbers.free.insert(number);
        }
        if numbers.used.is_empty() && !numbers.is_spoiled {
            self.paths.remove(&prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<const N: usize>() -> [NodeId; N] {
        std::array::from_fn(|n| NodeId::new(n.to_string()))
    }

    #[test]
    fn the_smallest_free_number_is_taken() {
        let (mut names, [a, b, c, d]) = (Names::default(), ids());
        assert_eq!([&a, &b, &c].map(|id| names.take("/x/", id)), [0, 1, 2]);
        assert_eq!((names.take("/x/", &b), names.take("/y/", &d)), (1, 0));
        names.free(&b, None);
        names.free(&a, None);
        assert_eq!([&b, &a].map(|id| names.take("/x/", id)), [0, 1]);
        let place = |id| names.get(id).map(|place| (place.prefix.to_string(), place.number));
        assert_eq!((place(&a), place(&d)), (Some(("/x/".to_owned(), 1)), Some(("/y/".to_owned(), 0))));
    }

    #[test]
    fn only_the_end_of_its_last_use_frees_a_name() {
        let (mut names, [a, b]) = (Names::default(), ids());
        names.take("/x/", &a);
        names.created(&a, 7);
        names.free(&a, None);
        names.free(&a, Some(6));
        assert_eq!(names.take("/x/", &b), 1);
        assert_eq!((names.find("/x/", 0, 7), names.find("/x/", 0, 8)), (Some(a.clone()), None));
        names.free(&a, Some(7));
        assert_eq!(names.find("/x/", 0, 7), None);
    }

    #[test]
    fn a_delete_that_may_still_take_effect_keeps_the_name() {
        let (mut names, [a]) = (Names::default(), ids());
        names.take("/x/", &a);
        assert!(names.begin_voiding(&a, 0) && names.begin_voiding(&a, 5) && names.begin_voiding(&a, 0));
        names.end_voiding(&a, 5);
        assert!(names.begin_voiding(&a, 5));
        names.end_voiding(&a, 7);
        assert!(!names.begin_voiding(&a, 7));
    }

    #[test]
    fn a_name_with_a_plain_delete_without_an_answer_is_never_used_again() {
        let (mut names, [a, b, c]) = (Names::default(), ids());
        let take = |names: &mut Names, id, created| {
            let number = names.take("/x/", id);
            names.created(id, created);
            number
        };
        take(&mut names, &a, 5);
        assert!(!names.begin_plain(&a, 6) && names.begin_plain(&a, 5) && !names.begin_plain(&a, 5));
        names.end_plain(&a);
        names.free(&a, Some(5));
        assert_eq!(take(&mut names, &b, 6), 0);
        assert!(names.begin_plain(&b, 6));
        names.free(&b, Some(6));
        // The answer to the plain delete comes too late.
        names.end_plain(&b);
        names.free(&b, Some(6));
        for created in 7..10 {
            assert_eq!(take(&mut names, &c, created), 1);
            assert!(names.begin_plain(&c, created));
            names.end_plain(&c);
            names.free(&c, Some(created));
        }
    }

    #[test]
    fn a_session_spoils_a_limited_number_of_names() {
        let mut names = Names::default();
        let mut spoil = |n: usize| {
            let (id, created) = (NodeId::new(n.to_string()), Some(1));
            names.take(&format!("/{n}/"), &id);
            names.created(&id, 1);
            let is_plain = names.begin_plain(&id, 1);
            names.free(&id, created);
            is_plain
        };
        let spoiled = (0..2 * MAX_PLAIN).map(&mut spoil).filter(|is_plain| *is_plain).count();
        assert_eq!(spoiled, MAX_PLAIN);
        assert_eq!(names.paths.len(), MAX_PLAIN);
    }

    #[test]
    fn a_name_of_another_client_is_left_out() {
        let (mut names, [a, b]) = (Names::default(), ids());
        names.take("/x/", &a);
        names.take_another(&a);
        assert_eq!((names.take("/x/", &a), names.take("/x/", &b)), (1, 2));
        names.free(&b, None);
        assert_eq!(names.take("/x/", &b), 2);
    }

    #[test]
    fn what_is_missing_was_created_and_is_not_there_any_more() {
        let (mut names, [a, b, c, d]) = (Names::default(), ids());
        for id in [&a, &b, &c] {
            names.take("/x/", id);
        }
        names.take("/y/", &d);
        for (id, created) in [(&a, 5), (&b, 6), (&d, 8)] {
            names.created(id, created);
        }
        let missing = |present: &[(u32, i64)]| names.missing("/x/", &present.iter().copied().collect());
        assert_eq!(missing(&[(0, 5), (1, 6)]), [].into());
        assert_eq!(missing(&[(0, 5), (1, 7)]), [b.clone()].into());
        assert_eq!(missing(&[]), [a.clone(), b].into());
        assert_eq!(names.with_keys([("/x/", 0), ("/x/", 9), ("/y/", 0)].into_iter()), [a, d].into());
    }

    #[test]
    fn nothing_is_kept_of_what_was_used_before() {
        let (mut names, [a, b]) = (Names::default(), ids());
        for n in 0..100 {
            let path = format!("/{n}/");
            names.take(&path, &a);
            names.take(&path, &b);
            names.take_another(&b);
            names.free(&a, None);
            names.free(&b, None);
        }
        assert!(names.places.is_empty() && names.paths.is_empty());
    }
}
