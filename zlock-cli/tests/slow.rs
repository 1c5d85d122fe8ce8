//! `zlock run` on servers that answer late. On real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::process::Stdio;
use std::time::Duration;

use tokio::time::sleep;
use zlock_testkit::Flow;

use crate::support::{POLL, Site, outcome, zlock};

const SESSION: Duration = Duration::from_secs(10);

/// Runs `zlock` on servers that answer this much later, to the end of the command. It starts the command at the first attempt.
async fn runs(site: &Site, late: Duration, args: &[&str]) {
    site.proxy.to_client(Flow::Delay(late));
    let url = site.url(site.proxy.addr(), SESSION);
    let (code, _, stderr) = outcome(zlock(&["run", "--url", &url]).args(args)).await;
    assert!(code == 0 && !stderr.contains("trying again"), "{args:?}: {code}, {stderr}");
}

/// Several requests are answered until the lock is held, so much of the first deadline is over by then.
async fn a_command_starts_as_soon_as_the_lock_lasts_for_long_enough(site: &Site) {
    runs(site, Duration::from_millis(900), &["slow/start/first", "--", "true"]).await;
}

/// The command runs for longer than the first deadline permits.
async fn a_deadline_moves_on_before_the_first_one_stops_the_command(site: &Site) {
    let args = ["--kill-after", "1s", "slow/runs/on", "--", "sleep", "6"];
    runs(site, Duration::from_millis(800), &args).await;
}

/// With this margin, too little time is left for a part of the time between two heartbeats. So each of several commands whose
/// lock becomes free at another moment waits for the next one.
async fn a_start_waits_for_the_next_heartbeat(site: &Site) {
    let (other, mut all) = (site.other().await, Vec::new());
    site.proxy.to_client(Flow::Delay(Duration::from_millis(450)));
    let url = site.url(site.proxy.addr(), SESSION);
    for n in 0..8 {
        let name = format!("slow/wait/{n}");
        let mutex = other.mutex(format!("/{name}")).unwrap();
        let held = mutex.acquire().await.unwrap();
        let mut command = zlock(&["run", "--url", &url, "--kill-after", "4s", &name, "--", "true"]);
        all.push((mutex, held, command.stderr(Stdio::piped()).spawn().unwrap()));
    }
    for (mutex, ..) in &all {
        while mutex.participants().await.unwrap().len() < 2 {
            sleep(POLL).await;
        }
    }
    // The first deadline is over.
    sleep(SESSION).await;
    let mut ends = Vec::new();
    for (_, held, command) in all {
        held.release().await.unwrap();
        ends.push(command);
        sleep(SESSION / 90).await;
    }
    for end in ends {
        let output = end.wait_with_output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !said.contains("trying again"), "{said}");
    }
}

on_each_store! {
    a_command_starts_as_soon_as_the_lock_lasts_for_long_enough,
    a_deadline_moves_on_before_the_first_one_stops_the_command,
}
on_store! { only_zookeeper, zk: a_start_waits_for_the_next_heartbeat, }
on_store! { postgres, postgres:
    a_command_starts_as_soon_as_the_lock_lasts_for_long_enough,
    a_deadline_moves_on_before_the_first_one_stops_the_command,
}
