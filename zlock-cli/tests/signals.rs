//! `zlock run`: signals, and what is left when one of its processes is killed. Uses a store inside the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use zlock_testkit::{have_strace, limit, limit_if};

use crate::support::{
    PidFile, at_a_prompt, eventually, exit_code, folder, is_alive, is_dead, keeper_of, number_in, pid_of,
    run_script, send, state, written, zlock,
};

/// Returns a command that reports the signals it receives, with a child that does the same.
fn listening(file: &Path) -> String {
    let [file, child] = [file.display().to_string(), file.with_extension("child").display().to_string()];
    let traps = |file: &str| {
        ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH"]
            .map(|signal| format!("trap 'echo {signal} >> {file}' {signal}; "))
            .concat()
    };
    let wait = "while :; do sleep 0.01; done";
    format!(
        "sh -c \"{} echo $$ >> {child}; {wait}\" & {} echo $$ >> {file}; {wait}",
        traps(&child).replace('"', "\\\""),
        traps(&file)
    )
}

#[tokio::test]
async fn signals_reach_the_command_and_its_children() {
    limit(async {
        let folder = folder();
        let file = folder.path().join("command");
        let files = [&file, &file.with_extension("child")];
        let child = run_script(&listening(&file)).stderr(std::process::Stdio::null()).spawn().unwrap();
        for file in files {
            written(file).await;
        }
        for (signal, name) in [
            (Signal::HUP, "HUP"),
            (Signal::INT, "INT"),
            (Signal::QUIT, "QUIT"),
            (Signal::TERM, "TERM"),
            (Signal::USR1, "USR1"),
            (Signal::USR2, "USR2"),
            (Signal::WINCH, "WINCH"),
        ] {
            send(pid_of(&child), signal);
            // A shell's children in the background ignore two of them.
            let reaches_both = !matches!(signal, Signal::INT | Signal::QUIT);
            for file in if reaches_both { &files[..] } else { &files[..1] } {
                let arrived = || std::fs::read_to_string(file).unwrap().lines().last() == Some(name);
                eventually((name, file), || arrived().then_some(())).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_signal_that_ends_the_command_is_the_exit_code() {
    limit(async {
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let file = PidFile::new();
            let script = format!("echo $$ > {file}; exec sleep 1000");
            let child = run_script(&script).spawn().unwrap();
            let command = file.number().await;
            send(pid_of(&child), signal);
            assert_eq!(exit_code(child).await, code);
            assert!(!is_alive(command));
        }
    })
    .await;
}

/// Starts a command with a grandchild that ignores all signals that it can. Returns their process IDs.
async fn stubborn(folder: &Path) -> (tokio::process::Child, i32, [i32; 2]) {
    let ignore = "trap '' HUP INT QUIT TERM USR1 USR2;";
    let [one, other] = ["command", "grandchild"].map(|name| folder.join(name));
    let script = format!(
        "{ignore} sh -c 'echo $$ > {}; while :; do sleep 0.01; done' & echo $$ > {}; while :; do sleep 0.01; done",
        other.display(),
        one.display()
    );
    let child = run_script(&script).spawn().unwrap();
    let pids = [number_in(&one).await, number_in(&other).await];
    let keeper = keeper_of(pid_of(&child)).await;
    (child, keeper, pids)
}

#[tokio::test]
async fn kill_9_of_zlock_takes_the_command_and_its_children_down() {
    limit(async {
        let folder = folder();
        let (mut child, keeper, pids) = stubborn(folder.path()).await;
        send(pid_of(&child), Signal::KILL);
        child.wait().await.unwrap();
        for pid in [keeper, pids[0], pids[1]] {
            is_dead(pid).await;
        }
    })
    .await;
}

#[tokio::test]
async fn kill_9_of_the_keeper_takes_the_command_and_its_children_down() {
    limit(async {
        let folder = folder();
        let (child, keeper, pids) = stubborn(folder.path()).await;
        send(keeper, Signal::KILL);
        assert_eq!(exit_code(child).await, 125);
        for pid in pids {
            assert!(!is_alive(pid), "zlock has ended before the command was dead");
        }
    })
    .await;
}

/// The kernel kills only the command itself, so the front must find its descendants.
#[tokio::test]
async fn kill_9_of_the_keeper_finds_children_that_left_the_group() {
    limit(async {
        let file = PidFile::new();
        let script = format!("setsid sh -c 'echo $$ > {file}; exec sleep 1000' & exec sleep 1000");
        let child = run_script(&script).spawn().unwrap();
        let left = file.number().await;
        send(keeper_of(pid_of(&child)).await, Signal::KILL);
        assert_eq!(exit_code(child).await, 125);
        is_dead(left).await;
    })
    .await;
}

/// A command that is never the same process for long: each one leaves its session, starts the next one, and ends.
#[tokio::test]
async fn kill_9_of_the_keeper_finds_a_chain_of_processes() {
    limit(async {
        // A search that misses the last process of one chain may find that of another.
        for _ in 0..10 {
            let folder = folder();
            let file = folder.path().join("links");
            let script = format!(
                r#"use POSIX qw(setsid _exit);
                for (my $n = 0; $n < 2000; $n++) {{
                    my $next = fork;
                    if ($next) {{ $n ? _exit(0) : sleep 1000 }}
                    setsid; open(my $file, '>>', '{}'); syswrite($file, "$$\n"); close $file;
                    select(undef, undef, undef, 0.002)
                }}"#,
                file.display()
            );
            let args = ["run", "--url", "mem://test", "a", "--", "perl", "-e", &script];
            let child = zlock(&args).stderr(Stdio::null()).spawn().unwrap();
            let links = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
            eventually("a chain", || (links() > 50).then_some(())).await;
            send(keeper_of(pid_of(&child)).await, Signal::KILL);
            assert_eq!(exit_code(child).await, 125);
            let ended = links();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            assert_eq!(links(), ended, "zlock has ended before the last process was dead");
        }
    })
    .await;
}

/// This includes signals that the shell's `kill` sends to a job. SIGSTOP cannot be caught.
#[tokio::test]
async fn the_keeper_outlives_what_is_sent_to_the_job() {
    limit(async {
        let file = PidFile::new();
        let script = format!("echo $$ > {file}; exec sleep 1000");
        let child = run_script(&script).process_group(0).spawn().unwrap();
        let command = file.number().await;
        let (front, keeper) = (pid_of(&child), keeper_of(pid_of(&child)).await);
        rustix::process::kill_process_group(rustix::process::Pid::from_raw(front).unwrap(), Signal::STOP)
            .unwrap();
        eventually("a front that is stopped", || (state(front) == Some('T')).then_some(())).await;
        for signal in
            [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::TSTP, Signal::TTOU]
        {
            send(keeper, signal);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        assert!(is_alive(command) && state(keeper) != Some('T'));
        send(front, Signal::CONT);
        send(front, Signal::TERM);
        assert_eq!(exit_code(child).await, 143);
    })
    .await;
}

#[tokio::test]
async fn a_command_that_is_stopped_goes_on_when_zlock_does() {
    limit(async {
        let file = PidFile::new();
        let script = format!("echo $$ > {file}; exec sleep 1000");
        // Not in the group of this test, which would be stopped on a terminal.
        let child = run_script(&script).process_group(0).spawn().unwrap();
        let command = file.number().await;
        send(pid_of(&child), Signal::TSTP);
        eventually("a command that is stopped", || (state(command) == Some('T')).then_some(())).await;
        send(pid_of(&child), Signal::CONT);
        eventually("a command that goes on", || (state(command) == Some('S')).then_some(())).await;
        send(pid_of(&child), Signal::TERM);
        assert_eq!(exit_code(child).await, 143);
    })
    .await;
}

/// Orphans become children of zlock.
#[tokio::test]
async fn orphans_are_reaped_while_the_command_runs() {
    limit(async {
        let file = PidFile::new();
        let script =
            format!("sh -c 'sh -c \"echo \\$\\$ > {file}; sleep 0.05; true\" & true'; exec sleep 1000");
        let _child = run_script(&script).spawn().unwrap();
        let orphan = file.number().await;
        eventually("no orphan, not even a zombie", || state(orphan).is_none().then_some(())).await;
    })
    .await;
}

/// The kernel does not kill a command that has changed its user or cleared its parent-death signal.
#[tokio::test]
async fn kill_9_of_the_keeper_takes_a_command_down_that_the_kernel_leaves_alone() {
    limit(async {
        let file = PidFile::new();
        let script = format!("exec setpriv --pdeathsig clear sh -c 'echo $$ > {file}; exec sleep 1000'");
        let child = run_script(&script).spawn().unwrap();
        let command = file.number().await;
        send(keeper_of(pid_of(&child)).await, Signal::KILL);
        assert_eq!(exit_code(child).await, 125);
        assert!(!is_alive(command));
    })
    .await;
}

/// A shell has started a process in the background and then executed zlock.
#[tokio::test]
async fn what_zlock_has_not_started_is_left_alone() {
    limit(async {
        let file = PidFile::new();
        let script = format!(
            "sleep 1000 & echo $! > {file}; exec {} run --url mem://t --shell a -- 'kill -KILL $PPID; sleep 1000'",
            env!("CARGO_BIN_EXE_zlock")
        );
        let child = tokio::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        assert_eq!(exit_code(child).await, 125);
        let other = file.number().await;
        assert!(is_alive(other));
        send(other, Signal::KILL);
    })
    .await;
}

/// This includes all descendants of the command, in any group.
#[tokio::test]
async fn kill_9_of_zlock_finds_children_that_left_the_group() {
    limit(async {
        let file = PidFile::new();
        let script = format!("setsid sh -c 'echo $$ > {file}; exec sleep 1000' & exec sleep 1000");
        let child = run_script(&script).spawn().unwrap();
        let left = file.number().await;
        send(pid_of(&child), Signal::KILL);
        is_dead(left).await;
    })
    .await;
}

/// Only the kernel is left to kill the command. The thread that started the command lives until then.
#[tokio::test]
async fn the_command_dies_with_both_processes() {
    limit(async {
        let file = PidFile::new();
        let script = format!("trap '' HUP TERM; echo $$ > {file}; while :; do sleep 0.01; done");
        let mut child = run_script(&script).spawn().unwrap();
        let command = file.number().await;
        let keeper = keeper_of(pid_of(&child)).await;
        send(pid_of(&child), Signal::STOP);
        send(keeper, Signal::KILL);
        send(pid_of(&child), Signal::KILL);
        child.wait().await.unwrap();
        is_dead(command).await;
    })
    .await;
}

/// When the command is reaped, its number and its group's may become another one's, and the front must not use them any
/// more.
#[tokio::test]
async fn the_front_learns_of_the_end_before_the_command_is_reaped() {
    limit_if(have_strace(), async {
        let folder = folder();
        let file = folder.path().join("trace");
        let mut strace = at_a_prompt("strace");
        strace.args(["-f", "-qq", "-e", "trace=write,wait4", "-o"]).arg(&file);
        strace.args([
            env!("CARGO_BIN_EXE_zlock"),
            "run",
            "--url",
            "mem://t",
            "a",
            "--",
            "sh",
            "-c",
            "exit 3",
        ]);
        assert_eq!(exit_code(strace.kill_on_drop(true).spawn().unwrap()).await, 3);
        let trace = std::fs::read_to_string(&file).unwrap();
        let line = |text: &str| trace.lines().position(|line| line.contains(text)).expect(&trace);
        // The message `Done` with this code.
        let (learns, reaped) = (line(r#""\6\3\0\0\0\0\0\0\0""#), line("WEXITSTATUS(s) == 3"));
        assert!(learns < reaped, "{trace}");
    })
    .await;
}
