//! The command line, parsed by clap.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use zlock::LockPath;

/// Distributed locks for scripts and cron jobs, on ZooKeeper, etcd, PostgreSQL, MySQL or MariaDB.
///
/// `zlock run` holds a lock while a command runs. The other subcommands show the holders and waiters of locks, ask
/// holders to release them, and check a store.
#[derive(Debug, Parser)]
#[command(
    name = "zlock",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
#[command(after_help = "\
Exit codes:
  0    Success; for run, the command's own exit code
  1    doctor: a check failed; revoke: there was nothing to revoke; leader: nobody leads; get: there is no value
  122  run: the tick or the key has run already (see --on-done)
  123  run: the lock was lost, or held for longer than --max-hold, and the command was stopped
  124  run: another client holds the lock (see --on-busy); join: another client has the ID
  125  zlock itself failed, or the command line is wrong; no command is left running
  126  run: the command cannot be executed
  127  run: the command was not found
  128+N  run: signal N ended the command or the wait for the lock

Environment:
  ZLOCK_URL            The store; --url takes precedence
  ZLOCK_NAME           The name to be seen under; defaults to the host and the process ID
  ZLOCK_USER           The user to authenticate as
  ZLOCK_PASSWORD_FILE  A file with the user's password; or ZLOCK_PASSWORD, the password itself
  ZLOCK_AUTH           ZooKeeper: digest (the default) or sasl
  PGPASSFILE           PostgreSQL: a file with passwords
  ZLOCK_CA_FILE        A PEM file with the certificates to trust; enables TLS
  ZLOCK_CERT_FILE, ZLOCK_KEY_FILE  PEM files with the client's own certificate and key

Examples:
  export ZLOCK_URL=etcd://etcd1:2379,etcd2:2379/production
  zlock run jobs/backup -- /usr/local/bin/backup
  zlock who jobs/backup")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Lead(Lead),
    Leader(Leader),
    Join(Join),
    Members(Members),
    /// Prints a value as it is.
    #[command(after_help = "Examples:\n  zlock get app/mode\n  zlock get --json app/mode")]
    Get(Lock),
    /// Writes a value, and creates it if it is missing.
    #[command(after_help = "Example:\n  zlock set app/mode read-only")]
    Set(Set),
    /// Prints a value, and again whenever it changes.
    #[command(after_help = "Example:\n  zlock watch-value --json app/mode | jq .value")]
    WatchValue(Lock),
    /// Lists the locks below a path that have holders or waiters.
    #[command(after_help = "Examples:\n  zlock ls\n  zlock ls jobs --json")]
    Ls(Below),
    /// Lists the jobs below a path that --tick, --once or a program has run: the last run, and the next tick.
    ///
    /// A job is running as long as its lock is held, and has died if its run has begun and nobody holds it. It is overdue if it
    /// has not succeeded for two periods.
    #[command(
        after_help = "Examples:\n  zlock jobs\n  zlock jobs --history jobs/nightly-report\n  zlock jobs jobs --json | jq '.jobs[] | select(.overdue)'"
    )]
    Jobs(Jobs),
    /// Shows the holders and waiters of a lock, in queue order.
    #[command(after_help = "Examples:\n  zlock who jobs/backup\n  zlock who --json jobs/backup")]
    Who(Lock),
    Revoke(Revoke),
    /// Prints each change of a lock: clients that start to wait, acquire the lock, or leave.
    #[command(
        after_help = "Examples:\n  zlock watch jobs/backup\n  zlock watch --json jobs/backup | jq .event"
    )]
    Watch(Lock),
    Top(Top),
    Record(Record),
    /// Checks that a store is ready for locks, and suggests a fix for each problem.
    ///
    /// Acquires and releases a lock named `zlock-doctor` below the path.
    #[command(after_help = "Examples:\n  zlock doctor\n  zlock doctor --json jobs")]
    Doctor(Below),
    Class(Class),
    /// Waits until a store grants locks again after a restart or a failover that may have lost commits.
    ///
    /// That takes about as long as the longest session timeout, and passes only while a client is connected. On a host where nothing
    /// but short commands uses the store, call this once after a failover.
    #[command(after_help = "Example:\n  zlock settle && zlock run jobs/backup -- backup")]
    Settle(StoreOnly),
    /// Declares that a backup was put back into a store without a restart of its server.
    ///
    /// That ends all sessions, and nothing is granted until what was granted before is certainly over.
    #[command(
        after_help = "Example:\n  pg_restore --clean --schema=zlock -d shop locks.dump && zlock restored"
    )]
    Restored(StoreOnly),
    Bench(Bench),
    /// What only PostgreSQL needs.
    #[cfg(feature = "postgres")]
    Pg {
        #[command(subcommand)]
        command: Pg,
    },
    /// What only MySQL and MariaDB need.
    #[cfg(feature = "mysql")]
    Mysql {
        #[command(subcommand)]
        command: Mysql,
    },
    /// Prints a completion script for a shell.
    #[command(after_help = "\
Examples:
  zlock completions bash > /etc/bash_completion.d/zlock
  zlock completions zsh > \"${fpath[1]}/_zlock\"
  zlock completions fish > ~/.config/fish/completions/zlock.fish")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints the man page.
    #[command(after_help = "Example:\n  zlock man > /usr/local/share/man/man1/zlock.1")]
    Man,
}

/// What only MySQL and MariaDB need.
#[cfg(feature = "mysql")]
#[derive(Debug, Subcommand)]
pub(crate) enum Mysql {
    /// Prints the SQL that an operator runs once in a database.
    ///
    /// It creates the tables and the procedures, whose names begin with `zlock_`. A user of zlock needs the right to execute each of the
    /// procedures, and no other. Running it again replaces the procedures, and leaves the tables alone.
    #[command(after_help = "Example:\n  zlock mysql schema | mysql shop")]
    Schema,
}

/// What only PostgreSQL needs.
#[cfg(feature = "postgres")]
#[derive(Debug, Subcommand)]
pub(crate) enum Pg {
    /// Prints the SQL that an operator runs once in a database, as the owner of what it creates.
    ///
    /// It creates the schema `zlock` and the role `zlock_user`, whose members may call the schema's functions, and nothing
    /// else. Running it again replaces the functions, and leaves the tables alone.
    #[command(after_help = "\
Examples:
  zlock pg schema | psql -v ON_ERROR_STOP=1 -1 shop
  psql -c 'GRANT zlock_user TO shop' shop")]
    Schema,
}

/// The store to use.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store: zk://HOST:2181,HOST/CHROOT, etcd://HOST:2379,HOST/PREFIX postgres://USER@HOST:5432,HOST/DATABASE or mysql://USER@HOST:3306,HOST/DATABASE.
    ///
    /// For zk+srv://DOMAIN/CHROOT and etcd+srv://DOMAIN/PREFIX, the servers come from the domain's SRV records.
    ///
    /// Parameters follow a question mark, for example zk://zk1/app?session_timeout=10s. All stores accept
    /// session_timeout, connect_timeout and operation_timeout.
    #[arg(long, env = "ZLOCK_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// A store, and how to print.
#[derive(Debug, Args)]
pub(crate) struct StoreOnly {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Shows or sets what a restart or a failover of a store may lose, for stores without sessions such as PostgreSQL.
///
/// auto (the default) is one-server until there is a sign of a replica, and then lossy for good. lossy: each restart ends all sessions.
/// one-server: the server flushes and is never replaced by a copy. sync: replicas confirm each commit.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  zlock class\n  zlock class --set sync")]
pub(crate) struct Class {
    #[command(flatten)]
    pub(crate) store: StoreOnly,
    /// The class to set, for all clients.
    #[arg(long, value_name = "CLASS", value_parser = class)]
    pub(crate) set: Option<zlock::backend::Class>,
}

/// Runs a command while holding a lock.
///
/// Waits for the lock, runs the command, and releases the lock once the command and every process in its process group
/// have ended. If the lock is about to be lost, the command receives SIGTERM and, after --kill-after, SIGKILL: it is
/// dead before another client can hold the lock.
///
/// The lock excludes overlap. It does not make a job run once: a client that starts after another one has finished runs
/// its command, too. --tick and --once do: they record the run beside the lock.
#[derive(Debug, Args)]
#[command(after_help = "\
Environment variables set for the command:
  ZLOCK_TOKEN  The fencing token, greater than the token of every earlier holder
  ZLOCK_PATH   The path of the lock
  ZLOCK_NODE   The znode or key on the server, which exists as long as the lock is held;
               on PostgreSQL, what zlock.fence takes
  ZLOCK_TICK   With --tick, the time for which the command runs, in UTC
  ZLOCK_ATTEMPT  With --tick or --once, the number of the attempt

Examples:
  zlock run jobs/backup -- /usr/local/bin/backup --full
  zlock run --no-wait --on-busy 0 jobs/report -- make-report
  zlock run --tick 1h --on-busy 0 --on-done 0 jobs/report -- make-report
  zlock run --once v1.2 jobs/migrate -- ./migrate up
  zlock run --wait 5m --kill-after 1s deploy -- ./deploy.sh
  zlock run --permits 1/4 jobs/encode -- ffmpeg -i in.mov out.mp4
  zlock run --shell jobs/copy -- 'tar c data | ssh backup tar x'")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Shares the lock with other clients that use --shared, and excludes all others.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Acquires N of MAX permits. All clients of the lock must use the same MAX.
    #[arg(long, value_name = "N/MAX", value_parser = permits)]
    pub(crate) permits: Option<(u32, u32)>,
    /// Waits at most this long for the lock, for example 5s or 2m. By default the wait has no limit. With no time to wait
    /// (0s), makes a single attempt, as --no-wait.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Exits at once if another client holds the lock.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// The time between SIGTERM and SIGKILL when the lock is about to be lost.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) kill_after: Duration,
    /// The longest time for which the command may hold the lock, for example 1h. When it is over, the command is stopped as before a
    /// loss: SIGTERM and, after --kill-after, SIGKILL. Then the lock is released. By default there is no limit.
    #[arg(long, value_name = "TIME", value_parser = positive)]
    pub(crate) max_hold: Option<Duration>,
    /// The exit code if another client holds the lock. An unreachable store is never reported as busy.
    #[arg(long, value_name = "CODE", default_value_t = crate::exit::BUSY)]
    pub(crate) on_busy: u8,
    /// Runs the command once for each tick, on one of the machines that call this. The tick is the multiple of this period
    /// since 1970, in UTC, that is nearest to now: with 1h, the full hour. Does not wait for the lock.
    #[arg(long, value_name = "PERIOD", value_parser = period, group = "recorded", conflicts_with_all = ["once", "shared", "permits", "wait", "no_wait"])]
    pub(crate) tick: Option<Duration>,
    /// Runs the command once for this key, such as a release or a date, on one of the machines that call this. Does not wait
    /// for the lock.
    #[arg(long, value_name = "KEY", value_parser = key, group = "recorded", conflicts_with_all = ["shared", "permits", "wait", "no_wait"])]
    pub(crate) once: Option<String>,
    /// With --tick or --once: how often the command is run until it succeeds. A call that fails, or whose process dies, uses
    /// one attempt, and a later call makes the next one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "recorded")]
    pub(crate) attempts: u32,
    /// With --tick or --once: the exit code if the command has run already.
    #[arg(long, value_name = "CODE", default_value_t = crate::exit::DONE, requires = "recorded")]
    pub(crate) on_done: u8,
    /// Runs the command, given as a single argument, with `sh -c`.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Reports on standard error what happens to the lock.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The lock, for example jobs/backup.
    #[arg(value_name = "NAME", value_parser = path)]
    pub(crate) name: LockPath,
    /// The command and its arguments.
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Set for `zlock lead`.
    #[arg(skip)]
    pub(crate) candidacy: Option<Candidacy>,
    /// Set for `zlock join`.
    #[arg(skip)]
    pub(crate) membership: Option<MembershipArgs>,
    /// `true` if this process has held the lock or been a member before.
    #[arg(skip)]
    pub(crate) is_again: bool,
}

impl Run {
    /// Returns `true` if a loss is followed by another attempt.
    pub(crate) fn begins_again(&self) -> bool {
        self.candidacy.is_some() || self.membership.is_some()
    }

    /// Returns how long it may take until the command is started. `None` without a limit.
    pub(crate) fn time_to_start(&self) -> Option<Duration> {
        self.wait.or((self.no_wait && !self.begins_again()).then_some(Duration::ZERO))
    }
}

/// What `zlock join` does instead of acquiring a lock.
#[derive(Debug)]
pub(crate) struct MembershipArgs {
    pub(crate) id: String,
    pub(crate) payload: Option<OsString>,
    pub(crate) take_over: bool,
}

/// What `zlock lead` adds to a lock.
#[derive(Debug)]
pub(crate) struct Candidacy {
    /// The value that others read.
    pub(crate) value: Option<OsString>,
}

/// Runs a command while leading an election, and again after each loss.
///
/// Waits until this candidate leads, and runs the command as `zlock run` does. If the leadership is lost, or if the leader is
/// asked to step down, the command is stopped. Then zlock campaigns again. It ends when the command ends by itself, with the
/// command's exit code, or when a signal ends it. An unreachable store is tried again.
#[derive(Debug, Args)]
#[command(after_help = "\
Environment variables set for the command:
  ZLOCK_TOKEN  The number of the term, greater than those of all terms before
  ZLOCK_PATH   The path of the election
  ZLOCK_NODE   The znode or key on the server, which exists as long as the term lasts;
               on PostgreSQL, what zlock.fence takes

Examples:
  zlock lead --value 10.0.0.7:80 app/leader -- /usr/local/bin/server
  zlock leader --watch app/leader")]
pub(crate) struct Lead {
    #[command(flatten)]
    store: Store,
    /// The value that others read, such as an address. Defaults to the host, the process ID and the command.
    #[arg(long, value_name = "TEXT")]
    value: Option<OsString>,
    /// The time between SIGTERM and SIGKILL when the leadership is about to be lost.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    kill_after: Duration,
    /// Runs the command, given as a single argument, with `sh -c`.
    #[arg(long)]
    shell: bool,
    /// Reports on standard error what happens to the leadership.
    #[arg(short, long)]
    verbose: bool,
    /// The election, for example app/leader.
    #[arg(value_name = "NAME", value_parser = path)]
    name: LockPath,
    /// The command and its arguments.
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl From<Lead> for Run {
    fn from(lead: Lead) -> Run {
        let Lead { store, value, kill_after, shell, verbose, name, command } = lead;
        Run {
            store,
            shared: false,
            permits: None,
            wait: None,
            no_wait: false,
            kill_after,
            max_hold: None,
            on_busy: crate::exit::BUSY,
            tick: None,
            once: None,
            attempts: 1,
            on_done: crate::exit::DONE,
            shell,
            verbose,
            name,
            command,
            candidacy: Some(Candidacy { value }),
            membership: None,
            is_again: false,
        }
    }
}

/// Runs a command while being a member of a group.
///
/// Joins with an ID that no other member has, and runs the command as `zlock run` does. The member leaves once the command and
/// every process in its process group have ended. If the session is about to be lost, so that another client may get the ID, the
/// command is stopped. Then zlock joins again. It ends when the command ends by itself, with the command's exit code, or when a
/// signal ends it. An unreachable store is tried again.
#[derive(Debug, Args)]
#[command(after_help = "\
Environment variables set for the command:
  ZLOCK_PATH   The path of the member: that of the group, with the ID

Examples:
  zlock join --payload 10.0.0.7:80 app/workers w7 -- /usr/local/bin/worker
  zlock members --watch app/workers")]
pub(crate) struct Join {
    #[command(flatten)]
    store: Store,
    /// What others read, such as an address.
    #[arg(long, value_name = "TEXT")]
    payload: Option<OsString>,
    /// Replaces a member with this ID, without a gap. For a machine on which nothing else uses the ID: a member that was killed is
    /// there for another session timeout. If another client then takes the ID over, zlock does not take it back, and exits with 123.
    #[arg(long)]
    take_over: bool,
    /// Exits at once if another client has the ID. By default, waits until it is free. After a loss, it waits for at most two
    /// session timeouts, since this client's own last session may still have the ID.
    #[arg(long, conflicts_with = "take_over")]
    no_wait: bool,
    /// The time between SIGTERM and SIGKILL when the membership is about to be lost.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    kill_after: Duration,
    /// Runs the command, given as a single argument, with `sh -c`.
    #[arg(long)]
    shell: bool,
    /// Reports on standard error what happens to the membership.
    #[arg(short, long)]
    verbose: bool,
    /// The group, for example app/workers.
    #[arg(value_name = "NAME", value_parser = path)]
    name: LockPath,
    /// The ID in the group.
    #[arg(value_name = "ID", value_parser = key)]
    id: String,
    /// The command and its arguments.
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl From<Join> for Run {
    fn from(join: Join) -> Run {
        let Join { store, payload, take_over, no_wait, kill_after, shell, verbose, name, id, command } = join;
        let lead = Lead { store, value: None, kill_after, shell, verbose, name, command };
        let membership = Some(MembershipArgs { id, payload, take_over });
        Run { no_wait, candidacy: None, membership, ..lead.into() }
    }
}

/// Shows the members of a group.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  zlock members app/workers\n  zlock members --watch --json app/workers")]
pub(crate) struct Members {
    #[command(flatten)]
    pub(crate) lock: Lock,
    /// Prints the members whenever they change, until a signal ends zlock.
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Shows the leader of an election.
///
/// Prints the leader's value and the number of its term. The exit code is 1 if nobody leads.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  zlock leader app/leader\n  zlock leader --watch --json app/leader")]
pub(crate) struct Leader {
    #[command(flatten)]
    pub(crate) lock: Lock,
    /// Prints the leader whenever it changes, until a signal ends zlock.
    #[arg(long, conflicts_with = "step_down")]
    pub(crate) watch: bool,
    /// Asks the leader to step down, and prints its term. It decides how to respond: `zlock lead` stops its command and
    /// campaigns again.
    #[arg(long)]
    pub(crate) step_down: bool,
}

/// A value to write.
#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The value's path.
    #[arg(value_name = "NAME", value_parser = path)]
    pub(crate) name: LockPath,
    /// The new value; `-` for standard input, as it is and to its end.
    #[arg(value_name = "VALUE")]
    pub(crate) value: OsString,
}

/// A lock, in a store.
#[derive(Debug, Args)]
pub(crate) struct Lock {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) format: Format,
    /// The lock.
    #[arg(value_name = "NAME", value_parser = path)]
    pub(crate) name: LockPath,
}

/// A part of a store.
#[derive(Debug, Args)]
pub(crate) struct Below {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) format: Format,
    /// The path to search below. Defaults to the URL's path.
    #[arg(value_name = "PREFIX", value_parser = path)]
    pub(crate) prefix: Option<LockPath>,
}

/// What `zlock jobs` shows.
#[derive(Debug, Args)]
pub(crate) struct Jobs {
    #[command(flatten)]
    pub(crate) below: Below,
    /// Shows the last runs of one job, up to ten, the latest first. A run without an end has died, or goes on.
    #[arg(long, requires = "prefix")]
    pub(crate) history: bool,
}

/// Asks the holders of a lock to release it, or removes one of them.
///
/// Each holder decides how to respond: `zlock run` sends SIGTERM to its command. --force removes the node with the
/// given token. Its holder notices a little later; until then, two clients may believe that they hold the lock.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  zlock revoke jobs/backup
  zlock who jobs/backup
  zlock revoke --force --token 4294967388 jobs/backup")]
pub(crate) struct Revoke {
    #[command(flatten)]
    pub(crate) lock: Lock,
    /// Removes the node with the token given by --token.
    #[arg(long, requires = "token")]
    pub(crate) force: bool,
    /// The token of the node to remove, as shown by `zlock who`.
    #[arg(long, value_name = "N", requires = "force")]
    pub(crate) token: Option<u64>,
}

/// Shows the locks of a store, and keeps the view up to date.
///
/// The locks with the most waiters come first. Keys: arrows select a lock, Enter shows its queue, s sorts by the number of
/// waiters, by the longest wait or by name, / filters, r asks the holders of the lock to release it, q quits.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  zlock top\n  zlock top --once jobs")]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Prints the view once, for a pipe or a log.
    #[arg(long)]
    pub(crate) once: bool,
    /// The time between two looks at the store.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = positive)]
    pub(crate) every: Duration,
    /// The path to search below. Defaults to the URL's path.
    #[arg(value_name = "PREFIX", value_parser = path)]
    pub(crate) prefix: Option<LockPath>,
}

/// Records who holds a lock and who waits for it, and writes a page that shows it on a time line.
///
/// The recording ends after --for, or at Ctrl-C or SIGTERM. The page needs no server and no other file.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  zlock record --for 10m --output backup.html jobs/backup")]
pub(crate) struct Record {
    #[command(flatten)]
    pub(crate) store: Store,
    /// How long to record, for example 10m. By default until Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// The file to write. Defaults to standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The lock.
    #[arg(value_name = "NAME", value_parser = path)]
    pub(crate) name: LockPath,
}

/// Measures the cost of locks on a store, and puts load on its servers.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  zlock bench --yes etcd://etcd1:2379/bench")]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) format: Format,
    /// Confirms that the servers may be put under load.
    #[arg(long)]
    pub(crate) yes: bool,
    /// How long each workload runs.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive)]
    pub(crate) time: Duration,
    /// The store.
    #[arg(value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) url: String,
}

/// The output format.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Format {
    /// Prints JSON.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
}

/// Parses what a restart of a store may lose.
fn class(text: &str) -> Result<zlock::backend::Class, String> {
    text.parse().map_err(|error: zlock::Error| error.to_string())
}

/// Parses the name of a lock: its path, with or without the leading slash.
fn path(name: &str) -> Result<LockPath, String> {
    let slash = if name.starts_with('/') { "" } else { "/" };
    LockPath::new(format!("{slash}{name}")).map_err(|error| error.to_string())
}

/// Parses a key, which becomes the last segment of a path.
fn key(key: &str) -> Result<String, String> {
    match path(key) {
        Ok(path) if path.parent().is_none() && !key.starts_with('/') => Ok(key.to_owned()),
        Ok(_) => Err("expected a key without slashes".into()),
        Err(error) => Err(error),
    }
}

/// Parses the period of a tick.
fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    if !(Duration::from_secs(1)..=Duration::from_secs(366 * 86_400)).contains(&period) {
        return Err("expected 1s to 8784h".into());
    }
    Ok(period)
}

/// Parses `N/MAX`.
fn permits(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('/').and_then(|(n, max)| Some((n.parse().ok()?, max.parse().ok()?)));
    let (n, max) = parts.ok_or("expected N/MAX, for example 1/4")?;
    if n == 0 || n > max {
        return Err(format!("{n} of {max} permits cannot be taken; expected 1 to MAX"));
    }
    Ok((n, max))
}

/// The units of a duration, in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// The longest duration: more than a year.
const MAX_MILLIS: u64 = 10_000 * 3_600_000;

/// Parses a duration such as `500ms`, `5s`, `2m` or `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let millis = unit.and_then(|(_, millis)| number.parse::<u64>().ok()?.checked_mul(*millis));
    let millis = millis.ok_or("expected a number with a unit, for example 500ms, 5s, 2m or 1h")?;
    if millis > MAX_MILLIS {
        return Err("expected at most 10000h".into());
    }
    Ok(Duration::from_millis(millis))
}

/// Like [`duration`], but not 0.
fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected a time above 0".into()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, millis) in [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "5 s", "-1s", "1.5s", "5S", "99999999999999999999s", "10001h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn permits_are_some_of_a_maximum() {
        assert_eq!(permits("1/4"), Ok((1, 4)));
        assert_eq!(permits("4/4"), Ok((4, 4)));
        for text in ["", "4", "0/4", "5/4", "1/0", "a/b", "-1/4", "1/4/4"] {
            assert!(permits(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_is_one_segment_and_a_period_is_not_too_short() {
        assert_eq!(key("v1.2"), Ok("v1.2".to_owned()));
        for text in ["", "/", "a/b", "/a", "..", "a/"] {
            assert!(key(text).is_err(), "{text}");
        }
        assert_eq!(period("24h"), Ok(Duration::from_secs(86_400)));
        for text in ["0s", "999ms", "8785h", "1d"] {
            assert!(period(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_may_lack_its_first_slash() {
        assert_eq!(path("a/b").unwrap(), path("/a/b").unwrap());
        for text in ["", "/", "a//b", "a/../b"] {
            assert!(path(text).is_err(), "{text}");
        }
    }
}
