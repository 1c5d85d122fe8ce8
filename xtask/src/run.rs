//! Runs commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a task, with an error message for the user.
pub(crate) type Result<T = (), E = String> = std::result::Result<T, E>;

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// Returns cargo's target folder.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Creates a command in the root of the workspace, with empty standard input.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Creates a command of the cargo that runs this.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    command(&cargo, args)
}

/// Returns the command as it would be typed.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs the command. It inherits standard output and standard error.
pub(crate) fn run(mut command: Command) -> Result {
    let shown = show(&command);
    println!("\n$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("failed ({status}): {shown}")),
        Err(e) => Err(format!("{shown}: {e}")),
    }
}

/// Runs the command and returns its standard output.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let shown = show(&command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{shown}: {e}"))?;
    if !output.status.success() {
        return Err(format!("failed ({}): {shown}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{shown}: {e}"))
}
