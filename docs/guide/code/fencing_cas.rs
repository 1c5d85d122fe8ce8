//! Fencing with a compare-and-set store: objects with a version, and writes that depend on it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use zlock::FencingToken;

/// An object store that can do one thing more than put and get: put if the version is still this one.
/// Object stores call it `If-Match`, DynamoDB a condition expression, Consul `cas`.
#[derive(Default)]
struct Objects(Mutex<BTreeMap<String, (u64, Object)>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Conflict;

impl Objects {
    /// The object and its version; version 0 if there is none.
    fn get(&self, key: &str) -> (u64, Option<Object>) {
        match self.0.lock().unwrap().get(key) {
            Some((version, object)) => (*version, Some(object.clone())),
            None => (0, None),
        }
    }

    fn put_if_version(&self, key: &str, version: u64, object: Object) -> Result<(), Conflict> {
        let mut objects = self.0.lock().unwrap();
        if objects.get(key).map_or(0, |(version, _)| *version) != version {
            return Err(Conflict);
        }
        objects.insert(key.to_owned(), (version + 1, object));
        Ok(())
    }
}

// ANCHOR: write
/// What is stored: the data, and the highest token that has touched it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    fence: [u8; 12],
    body: String,
}

/// A later holder has been here.
#[derive(Debug, PartialEq, Eq)]
struct Overtaken;

/// Reads an object under the lock, and leaves the token in it.
fn read(objects: &Objects, key: &str, token: FencingToken) -> Result<String, Overtaken> {
    change(objects, key, token, |body| body)
}

/// Replaces an object under the lock.
fn write(objects: &Objects, key: &str, token: FencingToken, body: &str) -> Result<(), Overtaken> {
    change(objects, key, token, |_| body.to_owned()).map(drop)
}

fn change(
    objects: &Objects,
    key: &str,
    token: FencingToken,
    new: impl Fn(String) -> String,
) -> Result<String, Overtaken> {
    loop {
        let (version, object) = objects.get(key);
        let object = object.unwrap_or(Object { fence: [0; 12], body: String::new() });
        if token.to_be_bytes() < object.fence {
            return Err(Overtaken);
        }
        let body = new(object.body);
        let object = Object { fence: token.to_be_bytes(), body: body.clone() };
        // On a conflict, look again: whoever came in between may have a newer token.
        if objects.put_if_version(key, version, object).is_ok() {
            return Ok(body);
        }
    }
}
// ANCHOR_END: write

#[test]
fn an_overtaken_holder_is_refused() {
    let objects = Objects::default();
    let (old, new) = (FencingToken::new(33), FencingToken::new(34));
    assert_eq!(read(&objects, "prices", old), Ok(String::new()));
    assert_eq!(write(&objects, "prices", old, "1"), Ok(()));
    assert_eq!(read(&objects, "prices", new), Ok("1".to_owned()));
    assert_eq!(write(&objects, "prices", old, "2"), Err(Overtaken));
    assert_eq!(write(&objects, "prices", new, "3"), Ok(()));
    assert_eq!(read(&objects, "prices", new), Ok("3".to_owned()));
}

/// The old holder has looked, the new one writes, the old one puts: the version stops it.
#[test]
fn nothing_slips_in_between_look_and_put() {
    let objects = Objects::default();
    let (old, new) = (FencingToken::new(33), FencingToken::new(34));
    let mut writes = 0;
    let slip = |body: String| {
        if objects.get("prices").0 == 0 {
            write(&objects, "prices", new, "new").unwrap();
        }
        body + "old"
    };
    assert_eq!(change(&objects, "prices", old, slip), Err(Overtaken));
    writes += objects.get("prices").0;
    assert_eq!(writes, 1);
}
