//! `zlock record` on real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[macro_use]
mod support;

use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use zlock_testkit::limit;

use crate::support::{folder, number_in, outcome, pid_of, send, zlock};

/// Waits until `zlock who` shows this many holders and waiters.
async fn until(url: &str, holders: usize, waiters: usize) {
    loop {
        let (_, table, _) = outcome(&mut zlock(&["who", "--url", url, "recorded"])).await;
        let count = |state| table.lines().filter(|line| line.starts_with(state)).count();
        if (count("holds"), count("waits")) == (holders, waiters) {
            return;
        }
        tokio::time::sleep(support::POLL).await;
    }
}

/// The bars of a class in a page, by what is shown beside the mouse pointer.
fn bars(page: &str, class: &str) -> Vec<String> {
    let bars = page.lines().filter(|line| line.starts_with(&format!("<rect class=\"{class}\"")));
    let texts = bars.filter_map(|bar| bar.split_once("<title>")?.1.split_once("</title>"));
    texts.map(|(text, _)| text.to_owned()).collect()
}

/// A lock that passes from one command to the next, while a third one waits.
async fn recorded(url: &str) {
    let folder = folder();
    let (page, file) = (folder.path().join("page.html"), folder.path().join("pid"));
    let run = |script: String| -> Child {
        let args = ["run", "--url", url, "--shell", "recorded", "--"];
        zlock(&args).arg(script).stderr(Stdio::null()).spawn().unwrap()
    };
    let _holder = run(format!("echo $$ > {}; exec sleep 1000", file.display()));
    let command = number_in(&file).await;
    let args = ["record", "--url", url, "--output", page.to_str().unwrap(), "recorded"];
    let mut record = zlock(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(record.stderr.take().unwrap()).lines();
    assert!(said.next_line().await.unwrap().unwrap().contains("recording /recorded"));

    let _next = run("sleep 1000 & wait".into());
    until(url, 1, 1).await;
    let _last = run("true".into());
    until(url, 1, 2).await;
    send(command, Signal::KILL);
    until(url, 1, 1).await;
    send(pid_of(&record), Signal::INT);
    assert!(record.wait().await.unwrap().success());

    let page = std::fs::read_to_string(page).unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.collect::<std::collections::BTreeSet<_>>(), ["page.html", "pid"].map(Into::into).into());
    let (holds, waits) = (bars(&page, "holds"), bars(&page, "waits"));
    assert_eq!(holds.len(), 2, "{page}");
    assert!(holds[0].contains("pid") && holds[0] != holds[1], "{holds:?}");
    // The last one still waits; that the next one waited may have been too short to see.
    assert!((1..=2).contains(&waits.len()) && waits.iter().all(|text| *text != holds[0]), "{waits:?}");
    assert!(page.starts_with("<!doctype html>") && page.contains("/recorded, from 20"), "{page}");
}

on_each_url! { recorded, }

#[tokio::test]
async fn a_recording_of_nothing_ends_in_time_and_goes_to_standard_output() {
    limit(async {
        let (code, page, _) =
            outcome(&mut zlock(&["record", "--url", "mem://x", "--for", "10ms", "a"])).await;
        assert_eq!(code, 0);
        assert!(page.ends_with("</html>\n"), "{page}");
        let (code, _, error) =
            outcome(&mut zlock(&["record", "--url", "mem://x", "--for", "10ms", "-o", "/", "a"])).await;
        assert_eq!(code, 125);
        assert!(error.contains("zlock: /: Is a directory"), "{error}");
    })
    .await;
}
