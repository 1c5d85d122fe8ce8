//! The keeper: the process that holds the lock and runs the command.

use std::ffi::CStr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, setpgid};
use tokio::time::{Instant, sleep};
use zlock::job::{JobRun, Tick};
use zlock::{Close, Environment, Error, ErrorKind, Guard, Membership, Release};

use super::acquire::{Held, connect, hold, nearest};
use super::child::Start;
use super::clock::Boot;
use super::grace::Grace;
use super::group;
use super::link::{Link, Message};
use super::log::Log;
use super::program;
use super::signals;
use super::terminal::Terminal;
use super::watchdog::{End, Watchdog};
use crate::args::Run;
use crate::exit::{self, Failure};
use crate::limits;
use crate::store::{Store, Target};

/// The time limit for the keeper to release the lock and exit once no command runs. After that, the front kills it.
pub(super) const TO_END: Duration = Duration::from_secs(60);

/// How long to wait for the store to say whether another client has the ID of a member that was lost, and the time between two looks.
const TO_KNOW: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) args: Run,
    pub(super) target: Target,
    pub(super) terminal: Option<Arc<Terminal>>,
    pub(super) front: Pid,
    /// The signals that zlock ignores, but did not ignore when it was started.
    pub(super) ignored: Vec<i32>,
    /// When the wait for the lock began.
    pub(super) began: Boot,
}

impl Keeper {
    /// Runs the keeper and returns the exit code.
    ///
    /// Everything runs on this process's main thread, because the kernel kills the command when the thread that started it
    /// ends.
    pub(super) fn run(mut self, link: UnixStream) -> u8 {
        let mut log = Log::new(self.args.verbose);
        // Its own group: a signal that stops the shell's job must not stop the heartbeats.
        let _ = setpgid(None, None);
        set_name(c"zlock-keeper");
        group::adopt_orphans();
        self.ignored.extend(signals::ignore_terminal());
        self.ignored.extend(signals::ignore_all());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (link, done) = match runtime {
            Ok(runtime) => {
                let done = runtime.block_on(self.keep(link, &mut log));
                // A DNS lookup may still be running.
                runtime.shutdown_background();
                done
            }
            Err(error) => (None, Err(cannot_start(error))),
        };
        let code = done.unwrap_or_else(|failure| {
            if !failure.message.is_empty() {
                log.say(&*failure.message);
            }
            failure.code
        });
        log.finish();
        if let Some(link) = &link {
            link.send(Message::Done(code));
        }
        // The link closes, and the front ends.
        code
    }

    /// Keeps the lock while the command runs. Returns the link, which must be closed last.
    async fn keep(self, link: UnixStream, log: &mut Log) -> (Option<Link>, Result<u8, Failure>) {
        match Link::new(link) {
            Ok(mut link) => {
                let done = self.keep_lock(&mut link, log).await;
                (Some(link), done)
            }
            Err(error) => (None, Err(cannot_start(error))),
        }
    }

    async fn keep_lock(&self, link: &mut Link, log: &mut Log) -> Result<u8, Failure> {
        let now = Instant::now();
        let began = now.checked_sub(self.began.until(Boot::now())).unwrap_or(now);
        // Not later: connecting may take long.
        let tick = self.args.tick.map(|period| nearest(period, log)).transpose()?;
        // A command must not run before the front can forward signals to it and kill it.
        if link.receive().await.is_none() {
            return Ok(exit::FAILED);
        }
        if self.target.has_server() {
            limits::threads()?;
        }
        let store = tokio::select! {
            biased;
            code = interrupted(link) => return Ok(code),
            store = connect(&self.args, &self.target, began, log) => store?,
        };
        let terms = store.terms;
        log.tell(|| format!("connected; the session timeout is {:?}", terms.timeout));
        let client = store.client(&self.node_data(&Environment::of_process()?))?;
        let (done, is_removed) = match Grace::new(self.args.kill_after, terms) {
            Err(why) => (Err(Failure::failed(why)), true),
            Ok(grace) => loop {
                let held = tokio::select! {
                    biased;
                    code = interrupted(link) => Err(Failure::new(code, "")),
                    held = hold(&self.args, &client, terms, began, tick, log) => held,
                };
                let held = match held {
                    Ok(held) => held,
                    Err(failure) => break (Err(failure), false),
                };
                let interrupted = tokio::select! {
                    biased;
                    code = interrupted(link) => Some(code),
                    () = held.lasts(&store, grace) => None,
                };
                if let Some(code) = interrupted {
                    // A claim does not look as if its command had begun.
                    break self.release(held, Err(Failure::new(code, "")), link, log).await;
                }
                if let Some(ended) = self.hold(held, grace, &store, link, began, log).await {
                    break ended;
                }
            },
        };
        // At the end of the session, the store removes its nodes.
        if !matches!(client.close().await, Ok(Close::Ended)) && !is_removed {
            let (name, timeout) = (&self.args.name, terms.timeout);
            log.say(format!(
                "{name}: no server responds; this client's node may block others for {timeout:?}"
            ));
        }
        done
    }

    /// Returns the data that identifies this client to others: its name, which defaults to host and process ID, and the program.
    fn node_data(&self, environment: &Environment) -> String {
        let program = self.args.command.first().and_then(|first| program::name(first, self.args.shell));
        let program = program.map_or_else(String::new, |name| format!(" ({name})"));
        let name = environment.name().map(str::to_owned).unwrap_or_else(|| {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("{host} pid {}", self.front.as_raw_nonzero())
        });
        format!("{name}{program}")
    }

    /// Runs the command, and releases the lock. Also returns `true` if the node is gone, or the lock was lost. Returns `None` if
    /// no command was started, and the lock is to be acquired again.
    async fn hold(
        &self,
        held: Held,
        grace: Grace,
        store: &Store,
        link: &mut Link,
        began: Instant,
        log: &mut Log,
    ) -> Option<(Result<u8, Failure>, bool)> {
        log.tell(|| match held.lock() {
            Some(lock) => format!("{}: locked, token {}", lock.path(), lock.fencing_token()),
            None => format!("{}: joined", held.path()),
        });
        let start = link.descriptor().map_err(cannot_start).map(|link| Start {
            command: self.args.command.clone(),
            shell: self.args.shell,
            environment: environment(&held, store),
            terminal: self.terminal.clone(),
            ignored: self.ignored.clone(),
            link,
        });
        let watchdog = Watchdog::new(&held, (grace, self.args.max_hold), store, link, log);
        let run = match start.and_then(|start| Ok((start, watchdog?))) {
            Ok((start, watchdog)) => self.run_command(start, watchdog).await,
            Err(failure) => Ok(Err(failure)),
        };
        // What is claimed is claimed once.
        let may_begin_again = !matches!(held, Held::Job(_))
            && self.args.time_to_start().is_none_or(|time| began.elapsed() < time);
        let mut begins_again = run.is_err() && may_begin_again;
        let mut done = run.unwrap_or_else(Err);
        if begins_again && let Some(by) = self.taken_over(&held, !held.is_held()).await {
            (begins_again, done) = (false, Err(Failure::new(exit::LOST, by.to_string())));
        }
        let done = match done {
            Err(failure) if begins_again => {
                log.say(format!("{}; trying again", failure.message));
                link.send(Message::Waiting);
                Err(failure)
            }
            done => self.ended(&held, done, link).await,
        };
        let ended = self.release(held, done, link, log).await;
        (!begins_again).then_some(ended)
    }

    /// Releases what was held, or records how a claimed tick or key has ended. Also returns `true` if the node is gone.
    async fn release(
        &self,
        held: Held,
        done: Result<u8, Failure>,
        link: &Link,
        log: &mut Log,
    ) -> (Result<u8, Failure>, bool) {
        match held {
            Held::Lock(guard) | Held::Term(guard, _) => (done, release(guard, log).await),
            Held::Job(run) => {
                let ended = end(*run, done, log).await;
                link.send(Message::Done(code(&ended.0)));
                ended
            }
            Held::Member(member) => (done, leave(member, log).await),
        }
    }

    /// Reports to the front how the command has ended. Returns the outcome of the whole.
    async fn ended(&self, held: &Held, done: Result<u8, Failure>, link: &Link) -> Result<u8, Failure> {
        link.send(match (held, &done) {
            (Held::Job(_), Ok(exit::SUCCESS)) => Message::Recording,
            _ => Message::Done(code(&done)),
        });
        // The front no longer uses the group's ID, so the command can be reaped, and orphans of the group too.
        group::reap(&[]);
        link.send(Message::Deadline(Boot::now().plus(TO_END).as_nanos()));
        let is_lost = done.as_ref().is_err_and(|failure| failure.code == exit::LOST);
        if let Some(by) = self.taken_over(held, is_lost).await {
            return Err(Failure::new(exit::LOST, format!("{by}; the command was stopped")));
        }
        if is_lost {
            link.send(Message::Lost);
        }
        done
    }

    /// Returns the error of a member that has taken its ID over and lost it to another client, so that these two do not end each other
    /// for ever. `None` if the member is registered again, or if that is not known in time.
    async fn taken_over(&self, held: &Held, is_lost: bool) -> Option<Error> {
        let takes_over = self.args.membership.as_ref().is_some_and(|membership| membership.take_over);
        let Held::Member(member) = held else { return None };
        if !is_lost || !takes_over {
            return None;
        }
        let registered = async {
            while !member.is_registered() {
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            error = member.ended() => Some(error).filter(|error| error.kind() == ErrorKind::Taken),
            () = registered => None,
            () = sleep(TO_KNOW) => None,
        }
    }

    /// Runs the command until it ends. No process of its group is alive after that.
    ///
    /// # Errors
    /// The outer error says that no command was started, because the lock was lost before, or about to be lost.
    async fn run_command(
        &self,
        start: Start,
        mut watchdog: Watchdog<'_>,
    ) -> Result<Result<u8, Failure>, Failure> {
        let not_after = watchdog.begin()?;
        let child = match start.spawn(not_after) {
            Ok(child) => child,
            Err(failure) if failure.code == exit::FAILED && Boot::now() >= not_after => return Err(failure),
            Err(failure) => return Ok(Err(failure)),
        };
        let end = watchdog.watch(child).await;
        Ok(match end {
            // A leader that stepped down campaigns again.
            End::Exited(_) if self.args.begins_again() && watchdog.is_asked() => {
                Err(Failure::new(exit::LOST, format!("{}: stepped down", self.args.name)))
            }
            End::Exited(code) => Ok(code),
            End::Lost(why) => Err(Failure::new(exit::LOST, format!("{why}; the command was stopped"))),
            End::FrontGone => {
                if let Some(terminal) = &self.terminal {
                    terminal.take_back(child.group());
                }
                Err(Failure::failed(""))
            }
        })
    }
}

fn code(done: &Result<u8, Failure>) -> u8 {
    match done {
        Ok(code) => *code,
        Err(failure) => failure.code,
    }
}

fn cannot_start(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot start: {error}"))
}

fn environment(held: &Held, store: &Store) -> Vec<(&'static str, String)> {
    let Some(lock) = held.lock() else { return vec![("ZLOCK_PATH", held.path().to_string())] };
    let mut environment = vec![
        ("ZLOCK_TOKEN", lock.fencing_token().to_string()),
        ("ZLOCK_PATH", lock.path().to_string()),
        ("ZLOCK_NODE", store.node(lock.path(), &lock.node())),
    ];
    if let Held::Job(run) = held {
        // A key has none.
        if run.tick() > Tick::at(SystemTime::UNIX_EPOCH) {
            environment.push(("ZLOCK_TICK", run.tick().to_string()));
        }
        environment.push(("ZLOCK_ATTEMPT", run.attempt().to_string()));
    }
    environment
}

/// Waits until a signal ends the wait for the lock, or the front is gone. Returns the exit code.
async fn interrupted(link: &mut Link) -> u8 {
    loop {
        match link.receive().await {
            Some(Message::Signal(signal)) if signals::ends_a_wait(signal) => return exit::by_signal(signal),
            // No command is running, so only the front is stopped.
            Some(Message::Signal(libc::SIGTSTP)) => link.send(Message::Stopped(libc::SIGTSTP)),
            Some(_) => {}
            None => return exit::FAILED,
        }
    }
}

/// Records whether the command has succeeded, and releases the lock in the same transaction. Also returns `true` if the node is
/// gone.
async fn end(run: JobRun, done: Result<u8, Failure>, log: &mut Log) -> (Result<u8, Failure>, bool) {
    let (path, was_held) = (run.path().clone(), run.is_held());
    let ended = if matches!(done, Ok(exit::SUCCESS)) { run.done().await } else { run.failed().await };
    match ended {
        Ok(()) => {
            log.tell(|| format!("{path}: recorded and released"));
            (done, true)
        }
        Err(error) => {
            let failure = format!("{path}: the command has ended, but that is not recorded: {error}");
            let done = match done {
                Ok(exit::SUCCESS) => Err(Failure::failed(failure)),
                // What ended the command is the message.
                Err(_) if !was_held => done,
                _ => {
                    log.say(failure);
                    done
                }
            };
            (done, !was_held)
        }
    }
}

/// Releases the lock. Returns `false` if its node may still be there.
async fn release(guard: Guard, log: &mut Log) -> bool {
    let path = guard.path().clone();
    if !guard.is_held() {
        return true;
    }
    match guard.release().await {
        Ok(Release::Pending) => log.tell(|| format!("{path}: no response; the release is pending")),
        Ok(_) => {
            log.tell(|| format!("{path}: released"));
            return true;
        }
        Err(error) => log.say(format!("{path}: not released: {error}")),
    }
    false
}

/// Leaves the group. Returns `false` if the member may still be there.
async fn leave(member: Membership, log: &mut Log) -> bool {
    let path = member.path().clone();
    match member.leave().await {
        Ok(Release::Pending) => {
            log.tell(|| format!("{path}: no response; the member is still to be removed"))
        }
        Ok(_) => {
            log.tell(|| format!("{path}: left"));
            return true;
        }
        Err(error) => log.say(format!("{path}: not left: {error}")),
    }
    false
}

/// Names this process for `ps` and `top`.
pub(super) fn set_name(name: &CStr) {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(name);
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}
