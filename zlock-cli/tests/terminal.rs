//! `zlock run` on a terminal, as a job of an interactive shell.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use rustix::process::Signal;
use zlock_testkit::limit;

use crate::support::terminal::Terminal;
use crate::support::{PidFile, eventually, is_alive, is_dead, pid_of, send, state};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// Starts an interactive shell on its own terminal. It ends, and everything on the terminal, when the terminal does.
fn shell() -> Terminal {
    let mut shell = support::at_a_prompt("setsid");
    shell.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"]).kill_on_drop(true);
    shell.env("ZLOCK", env!("CARGO_BIN_EXE_zlock")).env("PS1", "$ ").env("ZLOCK_URL", "mem://test");
    Terminal::start(shell.env("HISTFILE", "/dev/null").env("TERM", "dumb"))
}

#[tokio::test]
async fn ctrl_c_ends_the_command_and_the_shell_goes_on() {
    limit(async {
        let file = PidFile::new();
        let mut shell = shell();
        shell.type_in(&format!("$ZLOCK run --shell a -- 'echo $$ > {file}; sleep 1000'; echo code $?\n"));
        let command = file.number().await;
        // A shell that has not yet started what it waits for would wait for the end of that.
        let runs = || support::children(command).into_iter().find(|pid| name(*pid) == "sleep");
        eventually("a command that runs", runs).await;
        shell.type_in(CTRL_C);
        shell.shows("code 130").await;
        is_dead(command).await;
        shell.type_in("echo again $((1 + 1))\n");
        shell.shows("again 2").await;
    })
    .await;
}

#[tokio::test]
async fn the_command_has_the_terminal_while_it_runs() {
    limit(async {
        let mut shell = shell();
        // Without the terminal a read would stop the command.
        shell.type_in("$ZLOCK run --shell a -- 'read line; echo got $line; stty -a > /dev/null; echo $?.'\n");
        shell.type_in("input\n");
        shell.shows("got input").await;
        shell.shows("0.").await;
        // A shell without job control does not take it back by itself.
        shell.type_in("sh -c '$ZLOCK run a -- true; read line; echo script got $line'\ntext\n");
        shell.shows("script got text").await;
        // And the shell has it back.
        shell.type_in("read line; echo shell got $line\nmore\n");
        shell.shows("shell got more").await;
    })
    .await;
}

#[tokio::test]
async fn ctrl_z_stops_the_command_and_fg_lets_it_go_on() {
    limit(async {
        let file = PidFile::new();
        let mut shell = shell();
        shell.type_in(&format!(
            "$ZLOCK run --shell a -- 'echo $$ > {file}; read line; echo got $line; exit 9'; echo code $?\n"
        ));
        let command = file.number().await;
        for _ in 0..3 {
            shell.clear();
            shell.type_in(CTRL_Z);
            shell.shows("Stopped").await;
            assert_eq!(state(command), Some('T'));
            shell.type_in("echo prompt $((1 + 1))\n");
            shell.shows("prompt 2").await;
            shell.type_in("fg\n");
            eventually("a command that goes on", || (state(command) == Some('S')).then_some(())).await;
        }
        shell.clear();
        shell.type_in("input\n");
        shell.shows("got input").await;
        shell.type_in("echo last $?\n");
        shell.shows("last 9").await;
    })
    .await;
}

#[tokio::test]
async fn the_lock_is_kept_while_the_command_is_stopped() {
    limit(async {
        let file = PidFile::new();
        let mut shell = shell();
        shell.type_in(&format!("$ZLOCK run -v --shell a -- 'echo $$ > {file}; exec sleep 1000'\n"));
        let command = file.number().await;
        let keeper = parent(command);
        let front = parent(keeper);
        shell.type_in(CTRL_Z);
        shell.shows("Stopped").await;
        assert_eq!((state(command), state(front)), (Some('T'), Some('T')));
        assert_ne!(state(keeper), Some('T'));
        // A job in the background that is killed takes its command along.
        send(front, Signal::KILL);
        is_dead(command).await;
    })
    .await;
}

#[tokio::test]
async fn a_job_in_the_background_is_stopped_when_it_reads() {
    limit(async {
        let file = PidFile::new();
        let mut shell = shell();
        shell.type_in(&format!("$ZLOCK run --shell a -- 'echo $$ > {file}; read line; echo got $line' &\n"));
        let command = file.number().await;
        eventually("a command that is stopped", || (state(command) == Some('T')).then_some(())).await;
        // The shell says so when it has something to say.
        eventually("a shell that says so", || {
            shell.type_in("jobs\n");
            std::thread::sleep(support::POLL);
            shell.screen().contains("Stopped").then_some(())
        })
        .await;
        shell.type_in("fg\ninput\n");
        shell.shows("got input").await;
        is_dead(command).await;
    })
    .await;
}

/// The shell that started it is gone, so nobody would continue it.
#[tokio::test]
async fn an_orphan_in_the_background_that_reads_is_stopped_once() {
    limit(async {
        let file = PidFile::new();
        let mut shell = shell();
        shell.type_in(&format!(
            "sh -c '$ZLOCK run --shell a -- \"echo \\$\\$ > {file}; read line < /dev/tty\" &'\n"
        ));
        let command = file.number().await;
        let front = parent(parent(command));
        eventually("a command that is stopped", || (state(command) == Some('T')).then_some(())).await;
        for _ in 0..100 {
            assert_eq!(state(command), Some('T'));
            tokio::time::sleep(support::POLL).await;
        }
        send(front, Signal::KILL);
        is_dead(command).await;
    })
    .await;
}

/// A script has no job control: the shell that started it must see that the whole script has stopped.
#[tokio::test]
async fn ctrl_z_in_a_script_stops_the_script() {
    limit(async {
        let file = PidFile::new();
        let mut shell = shell();
        shell.type_in(&format!(
            "sh -c '$ZLOCK run --shell a -- \"echo \\$\\$ > {file}; exec sleep 1000\"; echo done'\n"
        ));
        let command = file.number().await;
        shell.type_in(CTRL_Z);
        shell.shows("Stopped").await;
        shell.clear();
        shell.type_in("fg\n");
        eventually("a command that goes on", || (state(command) == Some('S')).then_some(())).await;
        shell.type_in(CTRL_C);
        shell.shows("done").await;
        shell.type_in("echo prompt $((1 + 1))\n");
        shell.shows("prompt 2").await;
    })
    .await;
}

#[tokio::test]
async fn ctrl_z_and_ctrl_c_work_before_the_lock_is_held() {
    limit(async {
        let mut shell = shell();
        // Nobody answers there.
        let port = zlock_testkit::Port::reserve();
        let url = format!("zk://{}?connect_timeout=60s", port.addr());
        shell.type_in(&format!("$ZLOCK run --url {url} a -- true\n"));
        let keeper = eventually("a keeper", || {
            descendants(pid_of(&shell.process)).into_iter().find(|pid| name(*pid) == "zlock-keeper")
        })
        .await;
        let front = parent(keeper);
        shell.type_in(CTRL_Z);
        shell.shows("Stopped").await;
        shell.type_in("fg\n");
        eventually("a front that goes on", || (state(front) != Some('T')).then_some(())).await;
        shell.type_in(CTRL_C);
        is_dead(front).await;
        shell.type_in("echo code $?\n");
        shell.shows("code 130").await;
        assert!(!is_alive(front));
    })
    .await;
}

/// The command does not ask for the terminal, and a neighbour in the pipeline does.
#[tokio::test]
async fn a_neighbour_in_a_pipeline_reads_from_the_terminal() {
    limit(async {
        let file = PidFile::new();
        let mut shell = shell();
        shell.type_in(&format!(
            "$ZLOCK run --shell a -- 'echo $$ > {file}; exec sleep 1000' | \
             sh -c 'while ! [ -s {file} ]; do sleep 0.01; done; read line < /dev/tty; echo got $line'\ntext\n"
        ));
        let command = file.number().await;
        shell.shows("got text").await;
        shell.type_in(CTRL_C);
        is_dead(command).await;
    })
    .await;
}

/// The process that was to execute the command has had the terminal.
#[tokio::test]
async fn a_command_that_cannot_be_executed_gives_the_terminal_back() {
    limit(async {
        let mut shell = shell();
        // A shell without job control does not take it back by itself.
        shell.type_in("sh -c '$ZLOCK run a -- /no/such/command; read line; echo script got $line'\ntext\n");
        shell.shows("script got text").await;
    })
    .await;
}

fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

fn descendants(pid: i32) -> Vec<i32> {
    let children = support::children(pid);
    children.iter().flat_map(|child| descendants(*child)).chain(children.iter().copied()).collect()
}

fn name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}
