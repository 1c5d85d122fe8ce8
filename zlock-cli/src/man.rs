//! `zlock man`: the man page, which has a section for each subcommand.

use std::io;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::Cli;

/// Returns the page.
pub(crate) fn page() -> io::Result<Vec<u8>> {
    let mut zlock = Cli::command();
    zlock.build();
    let mut page = Vec::new();
    let man = Man::new(zlock.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    for command in zlock.get_subcommands().filter(|command| command.get_name() != "help") {
        page.extend(section(command)?);
    }
    man.render_extra_section(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// Renders a subcommand's page as a section.
fn section(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut parts = Vec::new();
    man.render_synopsis_section(&mut parts)?;
    man.render_description_section(&mut parts)?;
    man.render_options_section(&mut parts)?;
    man.render_extra_section(&mut parts)?;
    let parts = String::from_utf8_lossy(&parts).replace(".SH ", ".SS ");
    Ok(format!(".SH \"ZLOCK {}\"\n{parts}", command.get_name().to_uppercase()).into_bytes())
}
