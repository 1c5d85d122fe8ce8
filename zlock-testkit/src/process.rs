//! Child processes that a test can kill or freeze, and that cannot outlive it.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Runs the command, and kills it when standard input ends. That is a pipe held by the test process, so it ends however the
/// test process dies. The first line of output is the command's process ID. `$1` is empty, or a folder to remove unless `keep`
/// was read before. Processes that the command has started are in the guard's process group and are killed too.
///
/// `$2` is empty, or says that the command ends its children itself, on SIGQUIT. They are in groups of their own, may be frozen,
/// and would leave shared memory behind if the command was killed.
///
/// When the test process dies while the command is stopped, the kernel sends SIGHUP to their process group.
///
/// The command is reaped only at the end, so its process ID cannot be reused before.
const GUARD: &str = r#"
folder=$1; parent=$2; shift 2
sh -c 'echo $$; exec "$@"' sh "$@" </dev/null &
pid=$!
trap '' HUP
exec >/dev/null 2>&1
read -r end
if [ -n "$parent" ]; then
    kill -QUIT $pid; kill -CONT $pid
    for stat in /proc/[0-9]*/stat; do
        read -r child name state ppid rest <"$stat" && [ "$ppid" = $pid ] && kill -CONT "$child"
    done
    (sleep 20; kill -KILL $pid) &
else
    kill -KILL $pid
fi
wait $pid; code=$?
trap '' TERM; kill -TERM 0; kill -CONT 0
[ "$end" = keep ] || [ -z "$folder" ] || rm -rf -- "$folder"
exit $code
"#;

const POLL: Duration = Duration::from_millis(5);

/// A child process. Its standard output can be read line by line; its standard error goes to the test's.
///
/// The process is killed when this value is dropped, and when the test process ends, even by SIGKILL.
#[derive(Debug)]
pub struct Process {
    guard: Child,
    pid: Pid,
    /// It ends its children when it gets SIGQUIT, and they are frozen together.
    is_parent: bool,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Process {
    /// Starts a program with arguments and environment variables.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: &[A], env: &[(&str, &str)]) -> Self {
        let mut command: Vec<OsString> = vec![program.as_ref().to_owned()];
        command.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        Self::spawn_guarded(&command, env, None, None, false)
    }

    /// Starts a test of this test program again, in a separate process. `test` is the whole path of the test, beginning with the
    /// program's crate: `concat!(module_path!(), "::name")`. `env` lets the test know that it is the child. Its output includes
    /// lines of the test runner.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn_test(test: &str, env: &[(&str, &str)]) -> Self {
        let exe = std::env::current_exe().expect("the path of this program");
        let (_, name) = test.split_once("::").expect("the path of a test");
        Self::spawn(exe, &[name, "--exact", "--nocapture", "--include-ignored"], env)
    }

    /// Returns the path of an example or a binary that was built with the tests (`examples/name`, `name`).
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn built(name: &str) -> PathBuf {
        let exe = std::env::current_exe().expect("the path of this program");
        let profile = exe.parent().and_then(Path::parent).expect("target/PROFILE/deps/NAME");
        let path = profile.join(name);
        assert!(path.is_file(), "{} is not built: cargo test without --test does it", path.display());
        path
    }

    /// Starts a process with a folder that is removed when the test process dies, and with its output in a file. If `is_parent`
    /// is set, the process is ended by SIGQUIT and ends its children itself.
    pub(crate) fn spawn_guarded(
        command: &[OsString],
        env: &[(&str, &str)],
        folder: Option<&Path>,
        log: Option<&Path>,
        is_parent: bool,
    ) -> Self {
        let mut guard = Command::new("sh");
        guard.arg("-c").arg(GUARD).arg("guard").arg(folder.unwrap_or(Path::new("")));
        guard.arg(if is_parent { "parent" } else { "" });
        if let Some(log) = log {
            // The pid is written before the redirection takes effect.
            guard.args(["sh", "-c", r#"log=$1; shift; exec "$@" >>"$log" 2>&1"#, "sh"]).arg(log);
        }
        guard.args(command).envs(env.iter().copied());
        // Its own group: Ctrl-C on a terminal is for the test process, whose end kills this one.
        guard.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut guard = guard.spawn().expect("sh");
        let mut stdout = BufReader::new(guard.stdout.take().expect("a pipe"));
        let mut first = String::new();
        stdout.read_line(&mut first).expect("the pid");
        let pid = first.trim().parse().ok().and_then(Pid::from_raw).expect("the pid");
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || send_lines(stdout, &sender));
        Process { guard, pid, is_parent, lines }
    }

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns the next line of the standard output, or `None` once the process has closed it.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Waits for a line that begins with `prefix`, and returns the rest of the line. Earlier lines are dropped.
    ///
    /// # Panics
    /// If the output ends before.
    pub async fn line_after(&mut self, prefix: &str) -> String {
        while let Some(line) = self.line().await {
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
        panic!("the process ended without the line {prefix:?}");
    }

    /// Kills the process (SIGKILL). No-op if it has ended.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Asks the process to end (SIGTERM). No-op if it has ended.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Freezes the process (SIGSTOP). Returns when all threads are stopped: the thread that handles the signal may be late, and
    /// the others run until then.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        wait_until_stopped(self.pid());
        // A frozen parent starts no others.
        let children = self.children();
        children.iter().for_each(|child| signal(*child, Signal::STOP));
        children.into_iter().for_each(wait_until_stopped);
    }

    /// Continues the process (SIGCONT).
    pub fn resume(&self) {
        self.children().into_iter().for_each(|child| signal(child, Signal::CONT));
        self.signal(Signal::CONT);
    }

    /// Returns the processes that this one has to end.
    fn children(&self) -> Vec<u32> {
        if self.is_parent { children(self.pid()) } else { Vec::new() }
    }

    /// Makes `fsync` and `fdatasync` hang until the returned value is dropped, and nothing else. See
    /// [`have_strace`](crate::have_strace).
    ///
    /// # Panics
    /// If `strace` cannot trace the process.
    #[must_use]
    pub fn hang_syncs(&self) -> Process {
        let all = || self.children().into_iter().chain([self.pid()]);
        let delay = "inject=fdatasync,fsync:delay_enter=3600s";
        let mut args = ["-qq", "-f", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", delay]
            .map(str::to_owned)
            .to_vec();
        args.extend(all().flat_map(|pid| ["-p".to_owned(), pid.to_string()]));
        let strace = Process::spawn("strace", &args, &[]);
        while strace.is_running() && !all().all(is_traced) {
            std::thread::sleep(POLL);
        }
        assert!(strace.is_running(), "strace cannot trace process {}", self.pid());
        strace
    }

    /// Kills (SIGKILL) a process that this child has started. It must not have been reaped. Unlike the `kill` program, this is
    /// available on every machine.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn kill_descendant(&self, pid: u32) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::KILL).expect("a process of this pid");
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("a child that nobody has waited for");
    }

    /// Returns `true` until the process has ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        is_running(self.pid())
    }

    /// Waits until the process ends. Returns its exit code, or 128 plus the number of the signal that killed it.
    ///
    /// # Panics
    /// Panics if the exit code is not available.
    pub async fn wait(mut self) -> i32 {
        while self.is_running() {
            tokio::time::sleep(POLL).await;
        }
        self.reap().expect("the exit code")
    }

    /// Ends the guard, which kills all remaining processes. The folder stays. Returns `None` if that was done before.
    fn reap(&mut self) -> Option<i32> {
        let mut end = self.guard.stdin.take()?;
        let children = self.children();
        // It only fails if the guard has gone.
        let _ = end.write_all(b"keep\n");
        drop(end);
        let code = self.guard.wait().ok()?.code();
        // A parent may end just before the last of them.
        while children.iter().any(|child| is_running(*child)) {
            std::thread::sleep(POLL);
        }
        code
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reap();
    }
}

fn send_lines(stdout: impl Read, sender: &mpsc::UnboundedSender<String>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if sender.send(line).is_err() {
            return;
        }
    }
}

/// For a process that [`Process::pause`] is about to stop. Prints the line "held" when it may be stopped. Returns the first
/// result of `is_held` after a pause of the process that is longer than the argument. Blocks its thread.
#[must_use]
pub fn first_look_after_a_pause(longer_than: Duration, is_held: impl Fn() -> bool) -> bool {
    let mut before = Instant::now();
    println!("\nheld");
    loop {
        let now = Instant::now();
        let held = is_held();
        if now - before > longer_than {
            return held;
        }
        // A pause between the two lines above is seen in the next round.
        before = now;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns `true` if a process exists and is not a zombie.
pub(crate) fn is_running(pid: u32) -> bool {
    state(&format!("/proc/{pid}/stat")).is_some_and(|state| state != 'Z')
}

fn signal(pid: u32, signal: Signal) {
    // It only fails if the process has ended.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, signal));
}

fn wait_until_stopped(pid: u32) {
    while is_running(pid) && !threads(pid).all(|state| "TtZX".contains(state)) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the running children of a process.
fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after_name.split(' ').nth(1) == Some(&parent.to_string()) && is_running(*pid)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// Returns the states of a process's threads.
fn threads(pid: u32) -> impl Iterator<Item = char> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads.filter_map(|thread| state(&format!("{}/stat", thread.ok()?.path().display())))
}

/// Returns `true` if all threads of a process are traced.
fn is_traced(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.filter_map(Result::ok).all(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        !status.contains("TracerPid:\t0\n")
    })
}

fn state(path: &str) -> Option<char> {
    // "pid (name) state ...", and the name may hold anything.
    std::fs::read_to_string(path).ok()?.rsplit_once(") ")?.1.chars().next()
}
