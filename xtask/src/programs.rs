//! Lists the test programs that cargo has built.

use std::path::Path;

/// A test program.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program {
    /// The crate.
    pub(crate) package: String,
    /// Its main source file in the crate: `src/lib.rs`, `tests/live.rs`.
    pub(crate) source: String,
    /// The crate's folder.
    pub(crate) folder: String,
    /// The program.
    pub(crate) path: String,
}

/// Returns the test programs in cargo's JSON messages, one message a line, in order.
pub(crate) fn programs(messages: &str) -> Vec<Program> {
    let mut programs: Vec<_> = messages.lines().filter_map(program).collect();
    programs.sort();
    programs
}

fn program(message: &str) -> Option<Program> {
    // Not the programs that tests run: examples, and binaries for integration tests.
    let (_, profile) = message.split_once("\"profile\":{")?;
    if !profile.split('}').next()?.contains("\"test\":true") {
        return None;
    }
    let path = text(message, "executable")?;
    let folder = text(message, "manifest_path")?.strip_suffix("/Cargo.toml")?.to_owned();
    let source = text(message, "src_path")?.strip_prefix(&folder)?.trim_start_matches('/').to_owned();
    // The root, whatever its folder is called, is the one with the lock file.
    let is_root = Path::new(&folder).join("Cargo.lock").exists();
    let package = if is_root { "zlock" } else { folder.rsplit('/').next()? }.to_owned();
    Some(Program { package, source, folder, path })
}

/// Returns the value of a field in a line of JSON. Cargo writes no blanks, and the paths have no quotes.
fn text(json: &str, field: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{field}\":\""))?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_are_taken() {
        let message = |source: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/zlock-zk/Cargo.toml","target":{{"name":"x","src_path":"/w/zlock-zk/{source}","test":true}},"profile":{{"opt_level":"0","test":{test}}},"executable":{executable}}}"#
            )
        };
        let messages = [
            message("tests/live.rs", true, r#""/t/deps/live-1""#),
            message("src/lib.rs", true, r#""/t/deps/zlock_zk-2""#),
            message("src/lib.rs", false, "null"),
            message("examples/e.rs", false, r#""/t/examples/e""#),
            r#"{"reason":"build-finished","success":true}"#.into(),
        ];
        let found = programs(&messages.join("\n"));
        let found: Vec<_> = found.iter().map(|p| (&*p.package, &*p.source, &*p.folder, &*p.path)).collect();
        assert_eq!(
            found,
            [
                ("zlock-zk", "src/lib.rs", "/w/zlock-zk", "/t/deps/zlock_zk-2"),
                ("zlock-zk", "tests/live.rs", "/w/zlock-zk", "/t/deps/live-1"),
            ]
        );
    }
}
