//! Programs that are installed with cargo.

use std::path::Path;

use crate::run::{Result, cargo, command, run, target};

/// A program from crates.io, in a fixed version.
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Additional arguments for `cargo install`.
    pub(crate) install: &'static [&'static str],
}

impl Tool {
    /// Returns the path of the program: the one in `PATH` if it has this version, or one below the target folder, which is
    /// installed first if necessary.
    pub(crate) fn path(&self) -> Result<String> {
        if self.is(self.program) {
            return Ok(self.program.to_owned());
        }
        let root = target().join("tools");
        let path = root.join("bin").join(self.program).display().to_string();
        if !Path::new(&path).exists() || !self.is(&path) {
            let mut install = cargo(&["install", self.package, "--locked", "--version"]);
            install.arg(format!("={}", self.version)).args(self.install).arg("--root").arg(root);
            run(install)?;
        }
        Ok(path)
    }

    fn is(&self, program: &str) -> bool {
        let version = command(program, &["--version"]).output();
        version.is_ok_and(|out| {
            let text = String::from_utf8_lossy(&out.stdout);
            text.split_whitespace().any(|word| word.trim_start_matches('v') == self.version)
        })
    }
}
