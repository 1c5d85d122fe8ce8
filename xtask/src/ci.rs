//! `cargo xtask ci`: everything that must hold before a change lands.

use crate::api;
use crate::arrows;
use crate::circles;
use crate::docs;
use crate::lines;
use crate::planted;
use crate::release;
use crate::run::{Result, cargo, run};
use crate::setup::set_up;
use crate::test::{POOLS, everything, test};

/// The facade's features, each alone, and none.
const FEATURES: [&str; 15] = [
    "",
    "mem",
    "zk",
    "zk-tls",
    "zk-sasl",
    "etcd",
    "etcd-tls",
    "postgres",
    "postgres-tls",
    "mysql",
    "mysql-tls",
    "zk,etcd,srv",
    "metrics",
    "mem,cron",
    "mem,discovery",
];

/// The command's stores, each alone.
const STORES: [&str; 5] = ["mem", "zk", "etcd", "postgres", "mysql"];

pub(crate) fn ci() -> Result {
    run(cargo(&["fmt", "--all", "--check"]))?;
    run(cargo(&["fmt", "--manifest-path", POOLS, "--check"]))?;
    println!("\n$ who depends on whom");
    arrows::check()?;
    circles::check()?;
    println!("\n$ the public API is that of docs/api");
    api::check()?;
    println!("\n$ the lines of code are those of docs/lines.txt");
    lines::check()?;
    println!("\n$ the documentation: links, sentences, diagrams, spelling");
    docs::check()?;
    println!("\n$ the crates can be packaged, and need no newer Rust than they promise");
    release::check()?;

    // What is missing for the tests is found out before the long part.
    set_up()?;
    println!("\n$ planted bugs apply");
    planted::check()?;
    let mut clippy = cargo(&["clippy", "--all-targets"]);
    clippy.args(everything()).args(["--", "-D", "warnings"]);
    run(clippy)?;
    let mut doc = cargo(&["doc", "--no-deps"]);
    doc.args(everything()).env("RUSTDOCFLAGS", "-D warnings");
    run(doc)?;
    for feature in FEATURES {
        run(cargo(&["check", "-p", "zlock", "--no-default-features", "--features", feature]))?;
    }
    for store in STORES {
        let alone = ["clippy", "-p", "zlock-cli", "--no-default-features", "--features", store];
        run(cargo(&[&alone[..], &["--", "-D", "warnings"]].concat()))?;
    }
    test(&["--require".to_owned()])
}
