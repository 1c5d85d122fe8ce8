//! `zlock run` when the lock is lost, on real servers: the command is dead before another client holds the lock.
//!
//! Each round has a command that ignores SIGTERM and writes the time into a file as often as possible, and a client on another
//! connection that waits for the same lock. The last time in the file must be earlier than the time at which the client
//! acquires the lock. `ZLOCK_ROUNDS` is the number of rounds for each fault.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use zlock::{Client, Guard};
use zlock_testkit::{Flow, have_strace};

use crate::support::{
    BEATS, SESSION, Site, beating, eventually, is_alive, keeper_of, last_beat, nanos, pid_of, send, state,
    written, zlock,
};

/// The number of locks that are lost at the same time.
const AT_ONCE: usize = 5;

/// Not a test by itself: `support::beating` runs it.
#[test]
fn beat() {
    support::beat();
}

fn rounds() -> usize {
    std::env::var("ZLOCK_ROUNDS").map_or(AT_ONCE, |rounds| rounds.parse().unwrap())
}

/// A command under a lock, and a client that waits for the lock.
struct Round {
    zlock: Child,
    beats: PathBuf,
    next: JoinHandle<(Guard, u64)>,
    _folder: TempDir,
}

impl Round {
    /// `wrapper` is a program that runs the program that writes the time.
    async fn begin(site: &Site, other: &Client, name: &str, wrapper: &[&str]) -> Self {
        Round::begin_with(&[], site, other, name, wrapper).await
    }

    async fn begin_with(options: &[&str], site: &Site, other: &Client, name: &str, wrapper: &[&str]) -> Self {
        let folder = support::folder();
        let beats = folder.path().join("beats");
        let url = site.url(site.proxy.addr(), SESSION);
        let mut command = zlock(&["run", "--url", &url, "--kill-after", "200ms"]);
        command.args(options).args([name, "--"]).args(wrapper).args(beating()).env(BEATS, &beats);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let zlock = command.spawn().unwrap();
        written(&beats).await;
        let mutex = other.mutex(format!("/{name}")).unwrap();
        let next = tokio::spawn(async move {
            let guard = mutex.acquire().await.unwrap();
            (guard, nanos())
        });
        Round { zlock, beats, next, _folder: folder }
    }

    /// Waits until the client holds the lock. Returns the nanoseconds between the command's end and that, and the exit code.
    async fn end(self) -> (i64, Option<i32>) {
        let Round { mut zlock, beats, next, _folder } = self;
        let (guard, granted) = next.await.unwrap();
        // Time for a command that is still alive to say so.
        sleep(Duration::from_millis(50)).await;
        let margin = granted.cast_signed() - last_beat(&beats).cast_signed();
        assert!(margin > 0, "the command was alive {} us after the next one held the lock", -margin / 1000);
        guard.release().await.unwrap();
        (margin, zlock.wait().await.unwrap().code())
    }
}

/// Injects a fault in `rounds()` rounds. The lock must never have two holders. Returns the exit codes.
async fn every_round(
    site: &Site,
    fault: &str,
    harm: impl AsyncFnMut(&Site, &[Round]),
    mend: impl AsyncFnMut(&Site),
) -> Vec<Option<i32>> {
    every_round_of(&[], site, fault, harm, mend).await
}

/// A shell that starts a program in its own session, where signals for the group do not reach it.
const LEAVING: [&str; 4] = ["sh", "-c", "setsid \"$@\" & wait", "sh"];

async fn every_round_of(
    wrapper: &[&str],
    site: &Site,
    fault: &str,
    mut harm: impl AsyncFnMut(&Site, &[Round]),
    mut mend: impl AsyncFnMut(&Site),
) -> Vec<Option<i32>> {
    let (mut margins, mut codes) = (Vec::new(), Vec::new());
    while margins.len() < rounds() {
        let other = site.other().await;
        let mut all = Vec::new();
        for n in 0..AT_ONCE.min(rounds() - margins.len()) {
            all.push(Round::begin(site, &other, &format!("lost/{fault}/{n}"), wrapper).await);
        }
        harm(site, &all).await;
        let ends: Vec<_> = all.into_iter().map(|round| tokio::spawn(round.end())).collect();
        mend(site).await;
        for end in ends {
            let (margin, code) = end.await.unwrap();
            margins.push(margin);
            codes.push(code);
        }
        other.close().await.unwrap();
    }
    margins.sort_unstable();
    let micros = |i: usize| margins[i] / 1000;
    println!(
        "\n{} {fault}: {} rounds, smallest margin {} us, median {} us",
        site.scheme,
        margins.len(),
        micros(0),
        micros(margins.len() / 2)
    );
    codes
}

async fn link_cut(site: &Site) {
    cut(site, "cut", &[]).await;
}

async fn link_cut_and_a_descendant_left(site: &Site) {
    cut(site, "cut, descendant left", &LEAVING).await;
}

async fn cut(site: &Site, fault: &str, wrapper: &[&str]) {
    let harm = async |site: &Site, _: &[Round]| site.proxy.both(Flow::Swallow);
    let mend = async |site: &Site| {
        sleep(SESSION * 2).await;
        site.proxy.cut(zlock_testkit::Cut::Reset);
        site.proxy.heal().await;
    };
    let codes = every_round_of(wrapper, site, fault, harm, mend).await;
    assert!(codes.iter().all(|code| *code == Some(123)), "{codes:?}");
}

/// The keeper gets responses, but its requests are lost: the server does not hear from it.
async fn link_deaf(site: &Site) {
    let harm = async |site: &Site, _: &[Round]| site.proxy.to_server(Flow::Swallow);
    let mend = async |site: &Site| {
        sleep(SESSION * 2).await;
        site.proxy.cut(zlock_testkit::Cut::Reset);
        site.proxy.heal().await;
    };
    let codes = every_round(site, "deaf", harm, mend).await;
    assert!(codes.iter().all(|code| *code == Some(123)), "{codes:?}");
}

async fn server_frozen(site: &Site) {
    let harm = async |site: &Site, _: &[Round]| site.server.pause();
    let mend = async |site: &Site| {
        sleep(SESSION * 2).await;
        site.server.resume();
    };
    let codes = every_round(site, "frozen", harm, mend).await;
    assert!(codes.iter().all(|code| *code == Some(123)), "{codes:?}");
}

async fn server_killed(site: &Site) {
    let harm = async |site: &Site, _: &[Round]| site.server.stop();
    let mend = async |site: &Site| {
        sleep(SESSION * 2).await;
        site.server.restart().await;
    };
    let codes = every_round(site, "killed", harm, mend).await;
    assert!(codes.iter().all(|code| *code == Some(123)), "{codes:?}");
}

/// The process that would kill the command is stopped.
async fn keeper_stopped(site: &Site) {
    stop_keepers(site, "keeper stopped", &[]).await;
}

async fn keeper_stopped_and_a_descendant_left(site: &Site) {
    stop_keepers(site, "keeper stopped, descendant left", &LEAVING).await;
}

async fn stop_keepers(site: &Site, fault: &str, wrapper: &[&str]) {
    let harm = async |_: &Site, rounds: &[Round]| {
        for round in rounds {
            send(keeper_of(pid_of(&round.zlock)).await, Signal::STOP);
        }
    };
    let codes = every_round_of(wrapper, site, fault, harm, async |_: &Site| {}).await;
    assert!(codes.iter().all(|code| *code == Some(123)), "{codes:?}");
}

/// When both processes were stopped for longer than the session, and one of them continues, it kills the command.
async fn one_of_two_that_were_stopped_goes_on(site: &Site) {
    for is_front in [true, false] {
        let other = site.other().await;
        let round = Round::begin(site, &other, "lost/both", &[]).await;
        let command = command_of(&round).await;
        let Round { mut zlock, next, _folder, .. } = round;
        let front = pid_of(&zlock);
        let keeper = keeper_of(front).await;
        let (first, second) = if is_front { (front, keeper) } else { (keeper, front) };
        send(second, Signal::STOP);
        send(first, Signal::STOP);
        let (guard, _) = next.await.unwrap();
        assert!(is_alive(command), "what no process of zlock could do");
        send(first, Signal::CONT);
        support::is_dead(command).await;
        assert_eq!(state(second).filter(|_| !is_front), (!is_front).then_some('T'));
        if !is_front {
            send(second, Signal::CONT);
        }
        assert_eq!(zlock.wait().await.unwrap().code(), Some(123));
        guard.release().await.unwrap();
        other.close().await.unwrap();
    }
}

/// The process that runs the command.
async fn command_of(round: &Round) -> i32 {
    let keeper = keeper_of(pid_of(&round.zlock)).await;
    support::children(keeper)[0]
}

/// The keeper is stopped while it waits for the lock, when it could acquire it. It continues when another client holds it.
async fn a_keeper_that_is_stopped_starts_nothing_later(site: &Site) {
    let (one, other) = (site.other().await, site.other().await);
    let mutex = |client: &Client| client.mutex("/lost/late").unwrap();
    let held = mutex(&one).acquire().await.unwrap();
    let folder = support::folder();
    let file = folder.path().join("started");
    let url = site.url(site.proxy.addr(), SESSION);
    let file_name = file.to_str().unwrap();
    let args = ["run", "--url", &url, "--kill-after", "200ms", "lost/late", "--", "touch", file_name];
    let child = zlock(&args).spawn().unwrap();
    let front = pid_of(&child);
    let waiting = async |count: usize| {
        while mutex(&one).participants().await.unwrap().len() < count {
            assert!(!file.exists(), "started while another client holds the lock");
            assert!(is_alive(front), "ended instead of waiting again");
            sleep(support::POLL).await;
        }
    };
    waiting(2).await;
    let keeper = eventually("a keeper", || support::children(front).first().copied()).await;
    send(keeper, Signal::STOP);
    let mutex_of_other = mutex(&other);
    let next = tokio::spawn(async move { mutex_of_other.acquire().await.unwrap() });
    waiting(3).await;
    held.release().await.unwrap();
    let next = next.await.unwrap();
    send(keeper, Signal::CONT);
    // When it waits again, it has noticed.
    waiting(2).await;
    assert!(!file.exists(), "started while another client holds the lock");
    next.release().await.unwrap();
    assert_eq!(support::exit_code(child).await, 0);
    assert!(file.exists());
}

/// The keeper is stopped once it has the lock, right before it checks that it still has it, or right after that. It continues
/// when another client holds the lock, and waits for it again. The front, which would kill it meanwhile, is stopped too, and
/// continues later still: its time to kill is void.
async fn a_keeper_that_is_stopped_before_it_starts_the_command_does_not_start_it(site: &Site) {
    if !have_strace() {
        return;
    }
    // The alarm is created before the check, and the pipe or socket on which the new process reports an error after it.
    let (alarm, process) = ("timerfd_create", "pipe2,socketpair");
    let (at_the_alarm, at_the_start) = (
        "/lost/start: lost before the command was started",
        "the lock was lost before the command was started",
    );
    let spots = [
        (&["run"][..], alarm, at_the_alarm),
        (&["run", "--wait", "5m"], process, at_the_start),
        (&["lead"], alarm, at_the_alarm),
        (&["lead"], process, at_the_start),
        (&["run", "--wait", "10s"], alarm, at_the_alarm),
    ];
    for (verb, call, why) in spots {
        let other = site.other().await;
        let mutex = other.mutex("/lost/start").unwrap();
        let held = mutex.acquire().await.unwrap();
        let url = site.url(site.proxy.addr(), SESSION);
        let mut command = zlock(verb);
        command.args(["--url", &url, "--kill-after", "200ms", "lost/start", "--", "true"]);
        let (child, began) = (command.stderr(std::process::Stdio::piped()).spawn().unwrap(), Instant::now());
        while mutex.participants().await.unwrap().len() < 2 {
            sleep(support::POLL).await;
        }
        let front = pid_of(&child);
        let keeper = support::children(front)[0];
        let _strace = stop_at(keeper, call).await;
        held.release().await.unwrap();
        eventually("a keeper that is stopped", || matches!(state(keeper), Some('T' | 't')).then_some(()))
            .await;
        send(front, Signal::STOP);
        let next = mutex.acquire().await.unwrap();
        let is_over = verb.contains(&"10s");
        if is_over {
            sleep_until(began + Duration::from_secs(10)).await;
        }
        send(keeper, Signal::CONT);
        let expected = if is_over {
            support::is_dead(keeper).await;
            125
        } else {
            while mutex.participants().await.unwrap().len() < 2 {
                assert!(is_alive(keeper), "{verb:?} {call}: it ended instead of waiting again");
                sleep(support::POLL).await;
            }
            0
        };
        send(front, Signal::CONT);
        // Longer than the front waits for a reply.
        sleep(SESSION).await;
        next.release().await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(expected) && said.contains(why), "{verb:?} {call}: {said}");
        other.close().await.unwrap();
    }
}

/// The keeper is stopped right before it starts the command, until the front kills it. The command was not started, so the
/// front waits for the lock again.
async fn a_keeper_that_is_killed_before_it_starts_the_command_is_replaced(site: &Site) {
    if !have_strace() {
        return;
    }
    for verb in [&["run"][..], &["run", "--wait", "5m"], &["lead"]] {
        let folder = support::folder();
        let file = folder.path().join("started");
        let other = site.other().await;
        let mutex = other.mutex("/lost/killed").unwrap();
        let held = mutex.acquire().await.unwrap();
        let url = site.url(site.proxy.addr(), SESSION);
        let mut command = zlock(verb);
        command.args(["--url", &url, "--kill-after", "200ms", "lost/killed", "--"]);
        command.args(["sh", "-c", &format!("echo ran >> {}", file.display())]);
        let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        while mutex.participants().await.unwrap().len() < 2 {
            sleep(support::POLL).await;
        }
        let keeper = support::children(pid_of(&child))[0];
        let _strace = stop_at(keeper, "pipe2,socketpair").await;
        held.release().await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.contains("and was killed"), "{verb:?}: {said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "ran\n", "{verb:?}");
        other.close().await.unwrap();
    }
}

/// Makes a process stop, as by SIGSTOP, when it next makes this system call.
async fn stop_at(pid: i32, call: &str) -> Child {
    let mut strace = support::at_a_prompt("strace");
    strace.args(["-qq", "-o", "/dev/null", "-p", &pid.to_string(), "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=STOP:when=1")]);
    let strace = strace.kill_on_drop(true).spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    eventually("a tracer", || (!status().contains("TracerPid:\t0\n")).then_some(())).await;
    strace
}

/// A pause of the keeper that ends before the deadline does not kill the command. The front asks the keeper for the time to kill
/// after a quarter of the time that is left, so it asks during the pause, and waits for the reply.
async fn a_keeper_that_is_stopped_for_a_moment_loses_nothing(site: &Site) {
    let session = 3 * SESSION;
    let url = site.url(site.proxy.addr(), session);
    let args = ["run", "--url", &url, "--kill-after", "200ms", "lost/moment", "--", "sleep", "1000"];
    let child = zlock(&args).spawn().unwrap();
    let front = pid_of(&child);
    let keeper = keeper_of(front).await;
    let command = support::children(keeper)[0];
    send(keeper, Signal::STOP);
    sleep(session / 4).await;
    send(keeper, Signal::CONT);
    // By then, all times that the keeper announced before the pause have passed.
    sleep(session * 3 / 4).await;
    assert!(is_alive(command), "killed after a pause");
    send(front, Signal::TERM);
    assert_eq!(support::exit_code(child).await, 143);
}

async fn keeper_killed(site: &Site) {
    let harm = async |_: &Site, rounds: &[Round]| {
        for round in rounds {
            send(keeper_of(pid_of(&round.zlock)).await, Signal::KILL);
        }
    };
    let codes = every_round(site, "keeper killed", harm, async |_: &Site| {}).await;
    assert!(codes.iter().all(|code| *code == Some(125)), "{codes:?}");
}

async fn front_killed(site: &Site) {
    let harm = async |_: &Site, rounds: &[Round]| {
        for round in rounds {
            send(pid_of(&round.zlock), Signal::KILL);
        }
    };
    let codes = every_round(site, "front killed", harm, async |_: &Site| {}).await;
    assert!(codes.iter().all(Option::is_none), "{codes:?}");
}

/// SIGTERM is final: a later response of the server does not keep the command running.
async fn recovery_takes_nothing_back(site: &Site) {
    let folder = support::folder();
    let file = folder.path().join("said");
    let script = format!(
        "trap 'echo TERM >> {0}' TERM; echo begun >> {0}; while :; do sleep 0.01; done",
        file.display()
    );
    let url = site.url(site.proxy.addr(), SESSION);
    let mut command =
        zlock(&["run", "--url", &url, "--kill-after", "200ms", "--shell", "lost/back", "--", &script]);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    written(&file).await;
    site.proxy.both(Flow::Hold);
    eventually("SIGTERM", || std::fs::read_to_string(&file).unwrap().contains("TERM").then_some(())).await;
    site.proxy.both(Flow::Pass);
    let output = child.wait_with_output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(123), "{said}");
    assert!(said.contains("no server responds; sent SIGTERM to the command"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap().matches("TERM").count(), 1);
}

/// A command that ends in time is not killed.
async fn sigterm_comes_first(site: &Site) {
    let folder = support::folder();
    let file = folder.path().join("said");
    let script = format!(
        "trap 'echo tidy >> {0}; exit 0' TERM; echo begun >> {0}; while :; do sleep 0.01; done",
        file.display()
    );
    let url = site.url(site.proxy.addr(), SESSION);
    let mut command =
        zlock(&["run", "--url", &url, "--kill-after", "200ms", "--shell", "lost/term", "--", &script]);
    let child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    written(&file).await;
    site.proxy.both(Flow::Swallow);
    assert_eq!(support::exit_code(child).await, 123);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "begun\ntidy\n");
}

/// The front may be stopped for any length of time.
async fn a_front_that_is_stopped_loses_nothing(site: &Site) {
    let folder = support::folder();
    let file = folder.path().join("pid");
    let url = site.url(site.proxy.addr(), SESSION);
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let child =
        zlock(&["run", "--url", &url, "--kill-after", "200ms", "--shell", "lost/front", "--", &script])
            .spawn()
            .unwrap();
    let command = support::number_in(&file).await;
    let front = pid_of(&child);
    send(front, Signal::STOP);
    sleep(SESSION * 3).await;
    assert!(is_alive(command));
    send(front, Signal::CONT);
    sleep(SESSION * 2).await;
    assert!(is_alive(command), "{:?}", state(command));
    send(front, Signal::TERM);
    assert_eq!(support::exit_code(child).await, 143);
}

/// A command that ignores SIGTERM runs for longer than it may, also while its keeper is stopped. The session lives on, so the next
/// one holds the lock only when the command is dead.
async fn held_for_too_long(site: &Site) {
    for is_stopped in [false, true] {
        let other = site.other().await;
        let options = ["--max-hold", "400ms"];
        let round = Round::begin_with(&options, site, &other, "lost/long", &[]).await;
        let Round { zlock, beats, next, _folder } = round;
        let front = pid_of(&zlock);
        if is_stopped {
            let keeper = keeper_of(front).await;
            send(keeper, Signal::STOP);
            sleep(Duration::from_millis(600)).await;
            send(keeper, Signal::CONT);
        }
        let (guard, granted) = next.await.unwrap();
        sleep(Duration::from_millis(50)).await;
        assert!(granted > last_beat(&beats), "the command was alive when the next one held the lock");
        let output = zlock.wait_with_output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(123), "{stderr}");
        assert!(stderr.contains("lost/long: held for longer than 400ms"), "{stderr}");
        guard.release().await.unwrap();
        other.close().await.unwrap();
    }
}

async fn too_short_a_session_is_refused(site: &Site) {
    let url = site.url(site.proxy.addr(), SESSION);
    let (code, _, stderr) =
        support::outcome(&mut zlock(&["run", "--url", &url, "lost/short", "--", "true"])).await;
    assert_eq!(code, 125, "{stderr}");
    assert!(stderr.contains("--kill-after 2s does not fit into a session of 2s"), "{stderr}");
}

on_each_store! {
    link_cut,
    link_deaf,
    server_frozen,
    server_killed,
    link_cut_and_a_descendant_left,
    keeper_stopped,
    keeper_stopped_and_a_descendant_left,
    one_of_two_that_were_stopped_goes_on,
    a_keeper_that_is_stopped_starts_nothing_later,
    a_keeper_that_is_stopped_before_it_starts_the_command_does_not_start_it,
    a_keeper_that_is_killed_before_it_starts_the_command_is_replaced,
    a_keeper_that_is_stopped_for_a_moment_loses_nothing,
    keeper_killed,
    front_killed,
    recovery_takes_nothing_back,
    sigterm_comes_first,
    a_front_that_is_stopped_loses_nothing,
    held_for_too_long,
    too_short_a_session_is_refused,
}

// What differs between stores. The others are about the two processes of zlock.
on_store! { postgres, postgres: link_cut, server_frozen, held_for_too_long, }
