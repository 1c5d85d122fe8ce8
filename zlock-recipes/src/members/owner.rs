//! Which member owns a key: rendezvous hashing.
//!
//! Each member has a weight for each key, and the largest weight owns it ("highest random weight": Thaler and Ravishankar, "Using
//! name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998). When a member leaves, only its
//! own keys get other owners, and when one joins, it gets about the same number of keys from each of the others.

/// Returns the index of the owner of `key` among these IDs. `None` if there are none.
///
/// All processes, of all versions, must agree. So the weight must never change: 64-bit FNV-1a of the ID, a zero byte and the key,
/// then the finalizer of MurmurHash3. Of equal weights, that of the smaller ID wins.
pub(super) fn owner<'a>(ids: impl Iterator<Item = &'a str>, key: &[u8]) -> Option<usize> {
    let weighed = ids.enumerate().map(|(index, id)| (weight(id, key), std::cmp::Reverse(id), index));
    weighed.max().map(|(_, _, index)| index)
}

fn weight(id: &str, key: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = id.as_bytes().iter().chain(&[0]).chain(key);
    finalize(bytes.fold(0xcbf2_9ce4_8422_2325, step))
}

/// Spreads FNV's result, whose upper bits hardly depend on the last bytes.
fn finalize(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const KEYS: u32 = 10_000;

    fn owners(ids: &[String]) -> Vec<&str> {
        let of = |key: u32| {
            let owner = owner(ids.iter().map(String::as_str), format!("key {key}").as_bytes());
            ids[owner.unwrap()].as_str()
        };
        (0..KEYS).map(of).collect()
    }

    fn ids(n: u32) -> Vec<String> {
        (0..n).map(|id| format!("w{id}")).collect()
    }

    #[test]
    fn the_weights_are_for_ever() {
        for (id, key, expected) in
            [("w7", "", WEIGHTS[0]), ("w7", "customer 42", WEIGHTS[1]), ("", "", WEIGHTS[2])]
        {
            assert_eq!(weight(id, key.as_bytes()), expected, "{id:?} {key:?}");
        }
        assert_eq!(owner(std::iter::empty(), b"key"), None);
        assert_eq!(owner(["w1", "w2", "w3"].into_iter(), b"customer 42"), Some(1));
    }

    /// Computed by another program from the description.
    const WEIGHTS: [u64; 3] = [0x6151_3ab5_a434_721f, 0xb132_9c6c_c9bc_64dd, 0xb903_4ad3_7056_f5fb];

    #[test]
    fn each_member_owns_about_as_much_as_the_others() {
        let all = ids(8);
        let mut counts = BTreeMap::new();
        for owner in owners(&all) {
            *counts.entry(owner).or_insert(0_u32) += 1;
        }
        assert!(counts.len() == 8 && counts.values().all(|n| (1_125..1_375).contains(n)), "{counts:?}");
    }

    #[test]
    fn when_a_member_leaves_its_keys_alone_move() {
        let (all, mut rest) = (ids(8), ids(8));
        rest.remove(3);
        let (before, after) = (owners(&all), owners(&rest));
        for (was, is) in before.into_iter().zip(after) {
            assert!(was == is || was == "w3", "from {was} to {is}");
        }
    }
}
