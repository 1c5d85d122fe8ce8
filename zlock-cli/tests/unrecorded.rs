//! `zlock run --tick` when the command succeeds and that cannot be recorded. On real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use rustix::process::Signal;
use zlock_testkit::Flow;

use crate::support::{SESSION, Site, eventually, keeper_of, pid_of, send, state, written, zlock};

/// An operator removes the node of a command that runs for a tick, and the command succeeds before its holder can hear of that. The
/// record does not say that the run has ended, so the success is not reported as one.
async fn a_success_that_is_not_recorded_is_a_failure(site: &Site) {
    not_recorded(site, false, "/lost/tick: the command has ended, but that is not recorded: ").await;
}

/// The same if the process that holds the lock is killed while it records the success.
async fn a_keeper_that_is_killed_while_it_records_is_a_failure(site: &Site) {
    not_recorded(site, true, "ended before it had recorded that the command succeeded").await;
}

async fn not_recorded(site: &Site, is_killed: bool, why: &str) {
    let folder = support::folder();
    let (token, go) = (folder.path().join("token"), folder.path().join("go"));
    let script = format!(
        "echo $ZLOCK_TOKEN > {}; while ! [ -e {} ]; do sleep 0.01; done",
        token.display(),
        go.display()
    );
    let [url, direct] = [site.proxy.addr(), site.addr].map(|addr| site.url(addr, 10 * SESSION));
    let mut command = zlock(&["run", "--url", &url, "--tick", "1h", "--shell", "lost/tick", "--", &script]);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let token = written(&token).await;
    let keeper = keeper_of(pid_of(&child)).await;
    let command = support::children(keeper)[0];
    site.proxy.both(Flow::Hold);
    let revoke = ["revoke", "--url", &direct, "--force", "--token", token.trim(), "lost/tick"];
    assert_eq!(support::outcome(&mut zlock(&revoke)).await.0, 0);
    std::fs::write(&go, "").unwrap();
    // It is reaped when the holder has seen its end, right before that is to be recorded.
    eventually("a command that is reaped", || state(command).is_none().then_some(())).await;
    if is_killed {
        send(keeper, Signal::KILL);
    }
    site.proxy.both(Flow::Pass);
    let output = child.wait_with_output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains(why), "{said}");
}

on_each_store! {
    a_success_that_is_not_recorded_is_a_failure,
    a_keeper_that_is_killed_while_it_records_is_a_failure,
}
