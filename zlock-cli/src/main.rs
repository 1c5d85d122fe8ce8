//! The `zlock` command.

#[cfg(not(any(feature = "mem", feature = "zk", feature = "etcd", feature = "postgres", feature = "mysql")))]
compile_error!("a store is needed: enable the feature zk, etcd, postgres, mysql or mem");

mod args;
mod bench;
mod doctor;
mod exit;
mod history;
mod jobs;
mod leader;
mod limits;
mod ls;
mod man;
mod members;
mod output;
mod participant;
mod record;
mod revoke;
mod run;
mod store;
mod sys;
mod timeline;
mod top;
mod value;
mod watch;
mod who;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

#[cfg(feature = "postgres")]
use crate::args::Pg;
use crate::args::{Cli, Command};
use crate::exit::{Failure, say};

fn main() -> ExitCode {
    // A file that may not grow is then an error like a full disk. The command of `zlock run` gets the signal back.
    let limit = sys::ignore(&[libc::SIGXFSZ]);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let done = match cli.command {
        // It consists of two processes with a runtime each.
        Command::Run(args) => return run::run(args, limit),
        Command::Lead(args) => return run::run(args.into(), limit),
        Command::Leader(args) => wait_for(leader::leader(args)),
        Command::Join(args) => return run::run(args.into(), limit),
        Command::Members(args) => wait_for(members::members(args)),
        Command::Get(args) => wait_for(value::get(args)),
        Command::Set(args) => wait_for(value::set(args)),
        Command::WatchValue(args) => wait_for(value::watch(args)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "zlock", &mut script);
            print(&script)
        }
        Command::Man => match man::page() {
            Ok(page) => print(&page),
            Err(error) => Err(Failure::failed(format!("cannot write the page: {error}"))),
        },
        #[cfg(feature = "mysql")]
        Command::Mysql { command: args::Mysql::Schema } => print(zlock::mysql::schema_sql().as_bytes()),
        #[cfg(feature = "postgres")]
        Command::Pg { command: Pg::Schema } => print(zlock::postgres::schema_sql().as_bytes()),
        Command::Ls(args) => wait_for(ls::ls(args)),
        Command::Jobs(args) => wait_for(jobs::jobs(args)),
        Command::Who(args) => wait_for(who::who(args)),
        Command::Revoke(args) => wait_for(revoke::revoke(args)),
        Command::Watch(args) => wait_for(watch::watch(args)),
        Command::Top(args) => wait_for(top::top(args)),
        Command::Record(args) => wait_for(record::record(args)),
        Command::Doctor(args) => wait_for(doctor::doctor(args)),
        Command::Class(args) => wait_for(history::class(args)),
        Command::Settle(args) => wait_for(history::settle(args)),
        Command::Restored(args) => wait_for(history::restored(args)),
        Command::Bench(args) => wait_for(bench::bench(args)),
    };
    done.unwrap_or_else(|failure: Failure| failure.report())
}

fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    output::write(text).map(|()| ExitCode::SUCCESS)
}

/// Runs a subcommand that sends requests to a store.
fn wait_for(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    limits::files()?;
    limits::threads()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let done = runtime.block_on(command);
    // A DNS lookup may still be running.
    runtime.shutdown_background();
    done
}

/// Prints clap's help, or one line about an error in the command line.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print().map_or_else(|error| output::lost(&error).report(), |()| ExitCode::SUCCESS)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(exit::FAILED)
        }
        _ => {
            // clap's first paragraph is the error; advice and usage follow.
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let lines: Vec<_> = first.lines().map(str::trim).collect();
            // The most likely first mistake.
            let is_command = error.kind() == ErrorKind::UnknownArgument
                && text.contains("zlock run")
                && !first.contains("'-")
                && std::env::args_os().all(|argument| argument != "--");
            let advice = if is_command { "put -- before the command" } else { "try --help" };
            say(&format!("{}; {advice}", lines.join(" ").trim_start_matches("error: ")));
            ExitCode::from(exit::FAILED)
        }
    }
}
