//! Checks the dependencies between the crates: core <- backends, recipes <- facade.

use std::collections::BTreeSet;

use crate::run::{Result, cargo, output};

/// Arguments of `cargo tree`, and the members of the workspace that its output may contain.
const ARROWS: &[(&[&str], &[&str])] = &[
    (&["-p", "zlock-core", "--all-features"], &[]),
    (&["-p", "zlock-mem", "--all-features"], &["zlock-core"]),
    (&["-p", "zlock-zk", "--all-features"], &["zlock-core"]),
    (&["-p", "zlock-etcd", "--all-features"], &["zlock-core"]),
    (&["-p", "zlock-ledger", "--all-features"], &["zlock-core"]),
    (&["-p", "zlock-mysql", "--all-features"], &["zlock-core", "zlock-ledger"]),
    (&["-p", "zlock-postgres", "--all-features"], &["zlock-core", "zlock-ledger"]),
    (&["-p", "zlock-recipes", "--all-features"], &["zlock-core"]),
    (&["-p", "zlock-suite"], &["zlock-core", "zlock-recipes"]),
    (&["-p", "zlock", "--no-default-features"], &["zlock-core", "zlock-recipes"]),
    (&["-p", "zlock"], &["zlock-core", "zlock-recipes", "zlock-mem"]),
];

/// Checks every arrow.
pub(crate) fn check() -> Result {
    for (args, allowed) in ARROWS {
        let mut tree = cargo(&["tree", "--quiet", "-e", "normal", "--prefix", "none", "--format", "{p}"]);
        tree.args(*args);
        let text = output(tree)?;
        let members: BTreeSet<_> = text.lines().skip(1).filter_map(member).collect();
        let wrong: Vec<_> = members.iter().filter(|name| !allowed.contains(name)).copied().collect();
        if !wrong.is_empty() {
            return Err(format!("{} depends on {}", args.join(" "), wrong.join(", ")));
        }
        println!("{}: {}", args.join(" "), members.into_iter().collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// Returns the name in a line such as `zlock-core v0.1.0 (/path)`, if it is a crate of the workspace.
fn member(line: &str) -> Option<&str> {
    let name = line.split(' ').next()?;
    (name == "zlock" || name == "xtask" || name.starts_with("zlock-")).then_some(name)
}
