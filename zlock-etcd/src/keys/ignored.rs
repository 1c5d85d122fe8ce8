//! Keys that look like places and are none.

use std::collections::BTreeMap;

use zlock_core::Mutex;

/// Keys with the names of places that are none: the revisions at which they were created.
#[derive(Debug, Default)]
pub(crate) struct Ignored(Mutex<BTreeMap<String, i64>>);

impl Ignored {
    pub(crate) fn contains(&self, key: &str, created: i64) -> bool {
        self.0.lock().get(key) == Some(&created)
    }

    pub(crate) fn insert(&self, key: String, created: i64) {
        self.0.lock().insert(key, created);
    }
}
