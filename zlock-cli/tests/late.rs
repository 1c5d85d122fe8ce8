//! `zlock run` when the command takes long to die. On real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use zlock_testkit::{Flow, have};

use crate::support::{
    SESSION, Site, at_a_prompt, children, eventually, is_alive, is_dead, keeper_of, pid_of, send, written,
    zlock,
};

/// A shell script that notes each SIGTERM in a file, and goes on.
fn ignoring_sigterm(file: &std::path::Path) -> String {
    format!("trap 'echo TERM >> {0}' TERM; echo begun >> {0}; while :; do sleep 0.01; done", file.display())
}

/// Whether a PID namespace can be made. Root can.
fn have_namespaces() -> bool {
    let made = std::process::Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    let made = made.is_ok_and(|output| output.status.success());
    have((!made).then_some("PID namespaces cannot be made (apt-get install util-linux, and be root)"))
}

/// The command was killed because no server answered in time, and then servers answer again: the lock is kept until the
/// command is dead, however long that takes, and the front does not take the keeper for one that stands still.
///
/// The first process of a PID namespace dies only when all others of the namespace have been reaped, and one of them has a
/// parent outside, which is stopped.
async fn a_command_that_dies_slowly_keeps_its_lock(site: &Site) {
    if !have_namespaces() {
        return;
    }
    let folder = support::folder();
    let file = folder.path().join("said");
    // After the silence, ZooKeeper's deadline moves on only with the third answer. That is within two seconds.
    let (session, kill_after, tick) = match site.scheme {
        "zk" => (3 * SESSION, "2s", "&server_tick=500ms"),
        _ => (SESSION, "200ms", ""),
    };
    let url = site.url(site.proxy.addr(), session) + tick;
    let mut command = zlock(&["run", "--url", &url, "--kill-after", kill_after, "late/slow", "--"]);
    command.args(["unshare", "--pid", "--fork", "sh", "-c", &ignoring_sigterm(&file)]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    written(&file).await;
    let keeper = keeper_of(pid_of(&child)).await;
    let first = children(children(keeper)[0])[0];
    let mut outside = at_a_prompt("nsenter");
    outside.args(["--target", &first.to_string(), "--pid", "sleep", "1000"]).kill_on_drop(true);
    let outside = outside.spawn().unwrap();
    let inside = eventually("a process inside", || children(pid_of(&outside)).first().copied()).await;
    send(pid_of(&outside), Signal::STOP);

    site.proxy.both(Flow::Hold);
    let was_asked = || std::fs::read_to_string(&file).unwrap().contains("TERM").then_some(());
    eventually("SIGTERM", was_asked).await;
    site.proxy.both(Flow::Pass);
    is_dead(inside).await;
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("was killed but has not ended") {
        assert_ne!(stderr.read_line(&mut said).await.unwrap(), 0, "{said}");
    }
    // A session without renewals would be over by then.
    tokio::time::sleep(session).await;
    assert!(is_alive(keeper) && is_alive(first), "{said}");
    let other = site.other().await;
    let mutex = other.mutex("/late/slow").unwrap();
    assert!(mutex.try_acquire().await.unwrap().is_none());
    send(pid_of(&outside), Signal::CONT);
    stderr.read_to_string(&mut said).await.unwrap();
    assert_eq!(support::exit_code(child).await, 123, "{said}");
    assert!(!said.contains("the lock hung"), "{said}");
    // It was released, not left to the store.
    assert!(mutex.try_acquire().await.unwrap().is_some());
}

on_each_store! {
    a_command_that_dies_slowly_keeps_its_lock,
}
