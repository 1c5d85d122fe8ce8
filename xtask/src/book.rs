//! `cargo xtask book`: the guide as HTML.

use crate::docs;
use crate::run::{Result, command, run, target};
use crate::texts::markdown;
use crate::tools::Tool;
use crate::{diagrams, links};

const MDBOOK: Tool = Tool {
    program: "mdbook",
    package: "mdbook",
    version: "0.5.4",
    // Without mdBook's preview server.
    install: &["--no-default-features", "--features", "search"],
};

/// Draws the diagrams, checks the links, and builds the book.
pub(crate) fn book() -> Result {
    diagrams::write()?;
    let mut found = Vec::new();
    links::check(&markdown()?, &mut found)?;
    docs::report(&found)?;
    run(command(&MDBOOK.path()?, &["build", "docs/guide"]))?;
    println!("{}", target().join("guide/index.html").display());
    Ok(())
}
