//! `zlock run` on a terminal, as a job of an interactive shell.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::process::Child;
use zlock_testkit::limit;

use crate::support::{eventually, folder, is_alive, is_dead, number_in, pid_of, send, state};

/// An interactive shell on its own terminal.
struct Shell {
    terminal: File,
    screen: Arc<Mutex<String>>,
    _shell: Child,
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

impl Shell {
    fn start() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = || {
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
            Stdio::from(rustix::fs::open(&*name, flags, rustix::fs::Mode::empty()).unwrap())
        };
        let mut shell = support::at_a_prompt("setsid");
        shell.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"]).kill_on_drop(true);
        shell.env("ZLOCK", env!("CARGO_BIN_EXE_zlock")).env("PS1", "$ ").env("ZLOCK_URL", "mem://test");
        shell.env("HISTFILE", "/dev/null").env("TERM", "dumb");
        let shell = shell.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let terminal = File::from(master);
        let (mut output, screen) = (terminal.try_clone().unwrap(), Arc::<Mutex<String>>::default());
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            // An error means that no process has the terminal open any more.
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Shell { terminal, screen, _shell: shell }
    }

    fn type_in(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Runs a line that prints a number, and waits for the number.
    async fn shows(&self, text: &str) {
        let shown = || self.screen.lock().unwrap().contains(text);
        let screen = self.screen.clone();
        eventually(text, || shown().then_some(())).await;
        drop(screen);
    }

    /// Clears the output so far.
    fn clear(&self) {
        self.screen.lock().unwrap().clear();
    }
}

/// Prints the screen of a failed test.
impl Drop for Shell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- screen\n{}\n---", self.screen.lock().unwrap());
        }
        // The shell ends, and everything on its terminal, when the terminal does.
    }
}

#[tokio::test]
async fn ctrl_c_ends_the_command_and_the_shell_goes_on() {
    limit(async {
        let folder = folder();
        let file = folder.path().join("pid");
        let mut shell = Shell::start();
        shell.type_in(&format!(
            "$ZLOCK run --shell a -- 'echo $$ > {}; sleep 1000'; echo code $?\n",
            file.display()
        ));
        let command = number_in(&file).await;
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
        let mut shell = Shell::start();
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
        let folder = folder();
        let file = folder.path().join("pid");
        let mut shell = Shell::start();
        shell.type_in(&format!(
            "$ZLOCK run --shell a -- 'echo $$ > {}; read line; echo got $line; exit 9'; echo code $?\n",
            file.display()
        ));
        let command = number_in(&file).await;
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
        let folder = folder();
        let file = folder.path().join("pid");
        let mut shell = Shell::start();
        shell.type_in(&format!(
            "$ZLOCK run -v --shell a -- 'echo $$ > {}; exec sleep 1000'\n",
            file.display()
        ));
        let command = number_in(&file).await;
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
        let folder = folder();
        let file = folder.path().join("pid");
        let mut shell = Shell::start();
        shell.type_in(&format!(
            "$ZLOCK run --shell a -- 'echo $$ > {}; read line; echo got $line' &\n",
            file.display()
        ));
        let command = number_in(&file).await;
        eventually("a command that is stopped", || (state(command) == Some('T')).then_some(())).await;
        // The shell says so when it has something to say.
        eventually("a shell that says so", || {
            shell.type_in("jobs\n");
            std::thread::sleep(support::POLL);
            shell.screen.lock().unwrap().contains("Stopped").then_some(())
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
        let folder = folder();
        let file = folder.path().join("pid");
        let mut shell = Shell::start();
        shell.type_in(&format!(
            "sh -c '$ZLOCK run --shell a -- \"echo \\$\\$ > {}; read line < /dev/tty\" &'\n",
            file.display()
        ));
        let command = number_in(&file).await;
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
        let folder = folder();
        let file = folder.path().join("pid");
        let mut shell = Shell::start();
        shell.type_in(&format!(
            "sh -c '$ZLOCK run --shell a -- \"echo \\$\\$ > {}; exec sleep 1000\"; echo done'\n",
            file.display()
        ));
        let command = number_in(&file).await;
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
        let mut shell = Shell::start();
        // Nobody answers there.
        let port = zlock_testkit::Port::reserve();
        let url = format!("zk://{}?connect_timeout=60s", port.addr());
        shell.type_in(&format!("$ZLOCK run --url {url} a -- true\n"));
        let keeper = eventually("a keeper", || {
            descendants(pid_of(&shell._shell)).into_iter().find(|pid| name(*pid) == "zlock-keeper")
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
        let folder = folder();
        let file = folder.path().join("pid");
        let mut shell = Shell::start();
        shell.type_in(&format!(
            "$ZLOCK run --shell a -- 'echo $$ > {0}; exec sleep 1000' | \
             sh -c 'while ! [ -s {0} ]; do sleep 0.01; done; read line < /dev/tty; echo got $line'\ntext\n",
            file.display()
        ));
        let command = number_in(&file).await;
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
        let mut shell = Shell::start();
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
