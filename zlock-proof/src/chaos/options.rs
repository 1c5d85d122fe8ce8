//! The options on the command line.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::cluster::Store;

pub(crate) const USAGE: &str = "\
chaos --store zk|etcd|postgres|mysql [--minutes N | --seconds N] [--seed S] [--clients N] [--session-ms N] [--picture FILE]
chaos --store zk|etcd|postgres|mysql --names N";

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) store: Store,
    /// The duration of faults.
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// The number of client processes. The first one gets no faults of its own.
    pub(crate) clients: usize,
    pub(crate) session: Duration,
    /// Instead of faults: acquires one lock for each of this many names, and checks what is left.
    pub(crate) names: Option<u64>,
    /// Where to draw the histories. Those with a violation are drawn anyway.
    pub(crate) picture: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Options {
            store: Store::Zk,
            time: Duration::from_secs(60),
            seed: fastrand::u64(..1_000_000),
            clients: 8,
            session: Duration::from_secs(3),
            names: None,
            picture: None,
        };
        let mut store = None;
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or(format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--store" if value == "zk" => store = Some(Store::Zk),
                "--store" if value == "etcd" => store = Some(Store::Etcd),
                "--store" if value == "postgres" => store = Some(Store::Postgres),
                "--store" if value == "mysql" => store = Some(Store::Mysql),
                "--store" => return Err(format!("--store {value}: expected zk, etcd, postgres or mysql")),
                "--minutes" => options.time = Duration::from_secs(60 * number()?),
                "--seconds" => options.time = Duration::from_secs(number()?),
                "--seed" => options.seed = number()?,
                "--clients" => {
                    options.clients = usize::try_from(number()?).map_err(|e| e.to_string())?.max(2)
                }
                "--names" => options.names = Some(number()?),
                "--picture" => options.picture = Some(value.into()),
                "--session-ms" => options.session = Duration::from_millis(number()?),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        options.store = store.ok_or("--store is missing")?;
        Ok(options)
    }
}

impl fmt::Display for Options {
    /// Formats the command line that repeats the run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { store, time, seed, clients, session, .. } = self;
        let store = match store {
            Store::Zk => "zk",
            Store::Etcd => "etcd",
            Store::Postgres => "postgres",
            Store::Mysql => "mysql",
        };
        write!(
            f,
            "chaos --store {store} --seconds {} --seed {seed} --clients {clients} --session-ms {}",
            time.as_secs(),
            session.as_millis()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Options, String> {
        Options::parse(&args.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_shown_is_read() {
        let options = parse("--store zk --minutes 10 --seed 7 --clients 3 --session-ms 2000").unwrap();
        assert_eq!(options.time, Duration::from_secs(600));
        assert_eq!(parse(options.to_string().strip_prefix("chaos ").unwrap()).unwrap(), options);
    }

    #[test]
    fn bad_options_are_refused() {
        for (args, part) in [
            ("", "--store is missing"),
            ("--store x", "--store x"),
            ("--store zk --seed", "--seed needs a value"),
            ("--store zk --seed x", "--seed x: not a number"),
            ("--frob 1", "unknown option --frob"),
        ] {
            assert!(parse(args).unwrap_err().contains(part), "{args}");
        }
    }
}
