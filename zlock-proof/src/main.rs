//! Tries to break zlock: `zlock-proof sim|model|chaos ..`.
#![allow(clippy::expect_used, clippy::panic, reason = "a failed check reports it and exits")]

#[cfg(feature = "chaos")]
mod chaos;
#[cfg(feature = "chaos")]
mod history;
mod kind;
mod locks;
#[cfg(feature = "model")]
mod model;
mod sim;
#[cfg(feature = "chaos")]
mod timeline;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = args.split_first().map_or(("", &[][..]), |(task, rest)| (task.as_str(), rest));
    match task {
        "sim" => sim::run(rest),
        #[cfg(feature = "model")]
        "model" => model::run(rest),
        #[cfg(feature = "chaos")]
        "chaos" => chaos::run(rest),
        #[cfg(feature = "chaos")]
        "chaos-client" => chaos::run_client(rest),
        #[cfg(feature = "chaos")]
        "chaos-names" => chaos::run_names(rest),
        _ => {
            eprintln!("zlock-proof sim|model|chaos ..");
            ExitCode::from(2)
        }
    }
}
