//! Clients of a real cluster, each in its own process, under faults that are derived from a seed.

mod agreement;
mod alone;
mod bursts;
mod client;
mod clock;
mod cluster;
mod etcdctl;
mod locks;
mod names;
mod options;
mod pair;
mod plan;
mod record;
mod run;
mod sides;
mod slot;
mod split;
mod storage;
mod told;
mod verdict;
mod waits;
mod worker;
mod world;

use std::process::ExitCode;

pub(crate) use client::run as run_client;
pub(crate) use names::process as run_names;

use self::options::{Options, USAGE};

pub(crate) fn run(args: &[String]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let run = async {
        match options.names {
            Some(names) => match names::run(options.store, names).await {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            },
            None => run::run(&options).await.into(),
        }
    };
    runtime.expect("a runtime").block_on(run)
}
