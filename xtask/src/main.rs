//! The project's tasks. Run without an argument for a list.

mod api;
mod arrows;
mod book;
mod ci;
mod circles;
mod diagrams;
mod docs;
mod figures;
mod lanes;
mod lines;
mod links;
mod matrix;
mod pages;
mod planted;
mod program;
mod programs;
mod release;
mod run;
mod scenarios;
mod semver;
mod setup;
mod snippets;
mod summary;
mod test;
mod texts;
mod timeline;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test [--require] [FILTER..]
                                          installs what the tests need, runs all tests, and counts them
cargo xtask matrix [zk|etcd|postgres]     runs the tests of each store on servers newer than Debian's, downloaded once
cargo xtask ci                            runs all checks, and the tests with every server required
cargo xtask api                           writes docs/api, the listing of the public API that CI compares
cargo xtask lines                         writes docs/lines.txt, the lines of code of each crate that CI compares
cargo xtask book                          builds the guide as HTML with mdbook, which cargo installs the first time
cargo xtask pages                         measures the guide's pages in chromium, at the widths of a phone and a desktop
cargo xtask docs [--write]                checks links, spelling, long sentences, phrases to avoid, repeated figures and the code of files
                                          in the docs; --write first writes that code into the guide's pages
cargo xtask diagrams                      draws the guide's diagrams from their texts
cargo xtask release [TAG]                 tries what a release consists of: packages of the crates, the Debian package, a static
                                          binary, oldest dependencies, and changes of the API since TAG; half an hour
cargo xtask bench zk|etcd|postgres|mysql|mem [WORKLOAD..]  prints a line of JSON for each workload (w1 w2-8 w2-32 w3 w4 w5 w6 w7),
                                          on the servers of ZK_CONNECT or ETCD_ENDPOINTS
cargo xtask chaos --store zk|etcd|postgres|mysql [--minutes N] [--seed S] [--newest-servers]
                                          runs clients on a real cluster under faults, and checks their histories
cargo xtask sim [--seeds A..B] [--trace]  simulates many clients and faults for each seed, until one breaks a rule
cargo xtask planted [BUG..]               plants deliberate bugs, and reports how soon `sim` finds each; takes half an hour
cargo xtask planted --store ledger [BUG..] the same for the engine of stores without sessions
cargo xtask planted --store zk|etcd [BUG..]
                                          plants bugs in a backend, and reports those that ten minutes of `chaos` find
cargo xtask model [--quick] [--traces] [TABLE..]
                                          runs pure states of the locks under a model checker, for minutes or for seconds

ZLOCK_TEST_SERVERS=require|auto|off selects how `test` treats tests on real servers: require fails them if the server
is not installed, auto skips them then (the default), and off always skips them.
--newest-servers uses the last of the matrix's servers of that store instead of Debian's.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = args.split_first().map_or(("", &[][..]), |(task, rest)| (task.as_str(), rest));
    let done = match task {
        "test" => test::test(rest),
        "matrix" => matrix::matrix(rest),
        "ci" => ci::ci(),
        "api" => api::write(),
        "lines" => lines::write(),
        "book" => book::book(),
        "pages" => pages::pages(),
        "docs" => docs::docs(rest),
        "diagrams" => diagrams::write(),
        "release" => release::release(rest),
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
