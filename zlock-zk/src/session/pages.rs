//! Decides which of a session's nodes one heartbeat lists.

use zlock_core::NodeId;

/// The maximum number of nodes that one request lists, with an answer of about 100 kB. A heartbeat lists at least as many,
/// unless that needs more requests than it may send.
const NODES: usize = 1000;

/// The maximum number of requests with which one heartbeat lists nodes.
const REQUESTS: usize = 16;

/// The nodes whose paths at the server begin with a prefix, which may end in the middle of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn prefix(&self) -> &str {
        &self.0
    }

    pub(crate) fn lists(&self, id: &NodeId) -> bool {
        id.as_str().starts_with(&self.0)
    }
}

/// Returns the pages after the node at which the previous pages ended, and the node at which these end. They begin again
/// after the last node. `ids` are the beginnings of all nodes' paths, in order.
///
/// A single page lists all nodes if they are few enough. Otherwise each page is the shortest prefix of the next path with
/// which few enough paths begin.
pub(crate) fn pages(ids: &[NodeId], after: Option<&NodeId>) -> (Vec<Page>, Option<NodeId>) {
    if ids.len() <= NODES {
        return (vec![Page("/".into())], None);
    }
    let mut next = after.map_or(0, |after| ids.partition_point(|id| id <= after));
    if next == ids.len() {
        next = 0;
    }
    let (mut pages, mut nodes) = (Vec::new(), 0);
    while next < ids.len() && nodes < NODES && pages.len() < REQUESTS {
        let (page, end) = page(ids, next);
        nodes += end - next;
        pages.push(page);
        next = end;
    }
    (pages, Some(ids[next - 1].clone()))
}

/// Returns the page that begins with `ids[first]`, and its end.
fn page(ids: &[NodeId], first: usize) -> (Page, usize) {
    let path = ids[first].as_str();
    let ends = path.char_indices().map(|(at, c)| at + c.len_utf8());
    // The client library refuses paths that end in a slash.
    for prefix in ends.map(|end| &path[..end]).filter(|prefix| !prefix.ends_with('/')) {
        let start = ids.partition_point(|id| id.as_str() < prefix);
        let end = start + ids[start..].partition_point(|id| id.as_str().starts_with(prefix));
        if end - start <= NODES {
            return (Page(prefix.to_owned()), end);
        }
    }
    (Page(path.to_owned()), first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(paths: impl IntoIterator<Item = String>) -> Vec<NodeId> {
        let mut ids: Vec<_> = paths.into_iter().map(NodeId::new).collect();
        ids.sort();
        ids
    }

    fn prefixes(ids: &[NodeId], after: Option<&str>) -> Vec<String> {
        let (pages, _) = pages(ids, after.map(NodeId::new).as_ref());
        pages.into_iter().map(|page| page.0).collect()
    }

    /// Like node IDs: 16 bytes, evenly distributed.
    fn node_ids(count: u32) -> impl Iterator<Item = String> {
        (0..count).map(|n| format!("{:08x}-0000", n.wrapping_mul(0x9E37_79B9)))
    }

    #[test]
    fn few_nodes_are_one_page() {
        assert_eq!(prefixes(&[], None), ["/"]);
        let ids = ids((0..1000).map(|n| format!("/l/{n}/_c_x")));
        assert_eq!(prefixes(&ids, None), ["/"]);
        assert_eq!(prefixes(&ids, Some("/l/5/_c_x")), ["/"]);
    }

    #[test]
    fn pages_follow_one_another_and_begin_again() {
        let ids = ids((0..2500).map(|n| format!("/l/{n:04}/_c_x")));
        assert_eq!(prefixes(&ids, None), ["/l/0"]);
        assert_eq!(prefixes(&ids, Some("/l/0999/_c_x")), ["/l/1"]);
        assert_eq!(prefixes(&ids, Some("/l/1999/_c_x")), ["/l/2"]);
        assert_eq!(prefixes(&ids, Some("/l/2499/_c_x")), ["/l/0"]);
        // The node at which the last page ended is gone, or was the last one.
        assert_eq!(prefixes(&ids, Some("/l/0999/_c_y")), ["/l/1"]);
        assert_eq!(prefixes(&ids, Some("/z")), ["/l/0"]);
    }

    #[test]
    fn small_pages_share_a_heartbeat() {
        let ids = ids((0..5000).map(|n| format!("/l/{n:04}/_c_x")).chain(["/other/_c_x".into()]));
        assert_eq!(prefixes(&ids, Some("/l/4999/_c_x")), ["/o"]);
        let ids = self::ids((0..2600).map(|n| format!("/{}/{n}/_c_x", char::from(b'a' + (n % 26) as u8))));
        assert_eq!(prefixes(&ids, None), ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i", "/j"]);
        assert_eq!(prefixes(&ids, Some("/y/~")), ["/z"]);
        // More requests than allowed.
        let ids = self::ids((0..2000).map(|n| format!("/{}/_c_x", char::from_u32(0x4E00 + n).unwrap())));
        assert_eq!(prefixes(&ids, None).len(), REQUESTS);
    }

    #[test]
    fn one_path_is_divided_by_its_tokens() {
        let ids = ids(node_ids(1500).map(|node_id| format!("/crowd/_c_{node_id}")));
        let first = prefixes(&ids, None);
        assert_eq!(first[..3], ["/crowd/_c_0", "/crowd/_c_1", "/crowd/_c_2"]);
    }

    #[test]
    fn a_prefix_ends_neither_in_a_slash_nor_inside_a_character() {
        let ids = ids((0..2000).map(|n| format!("/é{}/_c_{n:04}", if n < 1500 { "" } else { "x" })));
        // `/é` has too many nodes and `/é/` is not a path; then the names begin.
        assert_eq!(prefixes(&ids, None)[0], "/é/_c_0");
        let unlike = self::ids((0..1001).map(|n| format!("/é{n}")).chain(["/è".into()]));
        assert_eq!(prefixes(&unlike, None)[0], "/è");
    }

    /// Whatever the paths are, each node is listed within a few heartbeats.
    #[test]
    fn each_node_is_listed_in_each_round() {
        let crowd = |count| node_ids(count).map(|node_id| format!("/crowd/_c_{node_id}"));
        let spread = |count| (0..count).map(|n: u32| format!("/own/{n}/_c_{n:08x}"));
        for (ids, heartbeats) in [
            (ids(crowd(1500)), 2),
            (ids(spread(2500)), 3),
            (ids(crowd(1500).chain(spread(2500))), 4),
            (ids(crowd(10_000)), 10),
            (ids(spread(20_000)), 20),
        ] {
            let (mut listed, mut after) = (vec![false; ids.len()], None);
            for _ in 0..heartbeats {
                let (pages, end) = pages(&ids, after.as_ref());
                let mut nodes = 0;
                for (listed, id) in listed.iter_mut().zip(&ids) {
                    let lists = pages.iter().any(|page| page.lists(id));
                    *listed |= lists;
                    nodes += usize::from(lists);
                }
                assert!(nodes < 2 * NODES && pages.len() <= REQUESTS, "{nodes}: {pages:?}");
                after = end;
            }
            let missed = listed.iter().filter(|listed| !**listed).count();
            assert_eq!(missed, 0, "of {} in {heartbeats} heartbeats", ids.len());
        }
    }
}
