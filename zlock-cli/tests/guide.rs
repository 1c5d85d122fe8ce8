//! Runs the files of the guide's page on the command as cron, systemd, a shell and a CI runner do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::{Path, PathBuf};

use tokio::process::Command;
use zlock_testkit::{etcd_or_skip, have, limit, limit_if};

use crate::support::{folder, outcome};

/// Returns the path of a file of the guide.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(example(name)).unwrap()
}

fn have_faketime() -> bool {
    let is_there = Path::new("/usr/bin/faketime").exists();
    have((!is_there).then_some("faketime is missing (apt-get install faketime)"))
}

/// A machine on which `zlock` and a few programs are installed, and a store.
struct Machine {
    url: String,
    folder: tempfile::TempDir,
}

impl Machine {
    async fn set_up() -> Option<Self> {
        let server = etcd_or_skip().await?;
        let folder = folder();
        let name = folder.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zlock"), folder.path().join("zlock")).unwrap();
        let machine = Machine { url: format!("etcd://{}/{name}", server.addr()), folder };
        for program in ["make-report", "backup", "migrate", "announce"] {
            machine.install(program, &format!("echo \"{program} $* token ${{ZLOCK_TOKEN:?}}\""));
        }
        Some(machine)
    }

    fn install(&self, program: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;

        let path = self.folder.path().join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A shell on this machine.
    fn sh(&self, script: &str) -> Command {
        let mut sh = Command::new("sh");
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        sh.args(["-c", script]).current_dir(self.folder.path()).env("PATH", path).env("ZLOCK_URL", &self.url);
        sh.stdin(std::process::Stdio::null()).kill_on_drop(true);
        sh
    }

    /// Runs something at this time of a day, by the wall clock alone: the deadlines of locks are on the monotonic one.
    async fn at(&self, time: &str, command: &str) -> (i32, String) {
        let script = format!("exec faketime -f '@2025-11-24 {time}' sh -c \"$COMMAND\"");
        let mut sh = self.sh(&format!("export TZ=UTC FAKETIME_DONT_FAKE_MONOTONIC=1; {script}"));
        let (code, stdout, stderr) = outcome(sh.env("COMMAND", command)).await;
        (code, stdout + &stderr)
    }

    /// Runs something on this machine; returns its exit code and its output.
    async fn run(&self, script: &str) -> (i32, String) {
        let (code, stdout, stderr) = outcome(&mut self.sh(script)).await;
        (code, stdout + &stderr)
    }
}

/// When cron starts a job, on a machine whose clock is a little ahead.
const TIME: &str = "18:00:05";

#[tokio::test]
async fn cron() {
    limit_if(have_faketime(), async {
        let Some(machine) = Machine::set_up().await else { return };
        let table = text("crontab");
        let line = table.lines().find(|line| line.starts_with('*')).unwrap();
        // Five fields of time, and the user.
        let command = line.split_whitespace().skip(6).collect::<Vec<_>>().join(" ");
        let (code, output) = machine.at(TIME, &command).await;
        assert!(code == 0 && output.starts_with("make-report --all token "), "{code} {output}");
        // Another machine, at the same tick.
        assert_eq!(machine.at(TIME, &command).await, (0, String::new()));
        // While another machine makes the report, nothing is run and nothing is printed.
        machine.install("make-report", "exec \"$WORK\"");
        let other = command.replace("jobs/report", "jobs/other");
        let during = format!("echo '{other}; echo code $?' > work; chmod +x work; WORK=./work {other}");
        assert_eq!(machine.at(TIME, &during).await, (0, "code 0\n".to_owned()));
        // Without a store it fails with a message.
        let without = format!("ZLOCK_URL='etcd://127.0.0.1:1?connect_timeout=100ms'; {command}");
        let (code, output) = machine.at(TIME, &without).await;
        assert!(code == 125 && output.contains("127.0.0.1:1"), "{code} {output}");
        // Between two ticks, machines may disagree on which one is nearer.
        machine.install("make-report", "true");
        let (code, output) = machine.at("18:12:20", &command).await;
        assert!(code == 0 && output.contains("18:10:00Z, is 140s away"), "{code} {output}");
    })
    .await;
}

/// Two machines whose clocks are 3 seconds apart, with the line of the crontab, minute by minute. With the lock alone, both make the
/// report. With the tick, one does.
#[tokio::test]
async fn two_machines_whose_clocks_differ_make_one_report_each_tick() {
    limit_if(have_faketime(), async {
        let Some(machine) = Machine::set_up().await else { return };
        machine.install("make-report", "echo $* >> reports");
        let reports = async || machine.run("cat reports; rm -f reports").await.1.lines().count();
        let table = text("crontab");
        let line = table.lines().find(|line| line.starts_with('*')).unwrap();
        let with_tick = line.split_whitespace().skip(6).collect::<Vec<_>>().join(" ");
        let alone = with_tick.replace("--tick 5m", "--no-wait").replace("--on-done 0", "");
        // 200 minutes with `ZLOCK_LONG_CRONTAB`.
        let ticks = if std::env::var_os("ZLOCK_LONG_CRONTAB").is_some() { 40 } else { 4 };
        for (command, expected) in [(alone, 2 * ticks), (with_tick, ticks)] {
            for tick in 0..ticks {
                let (hour, minute) = (18 + tick / 12, 5 * (tick % 12));
                for second in ["00", "03"] {
                    let made = machine.at(&format!("{hour}:{minute:02}:{second}"), &command).await;
                    assert_eq!(made, (0, String::new()), "{command}");
                }
            }
            let made = reports().await;
            zlock_testkit::report(format!("{ticks} ticks, 2 machines: {made} reports by {command}"));
            assert_eq!(made, expected, "{command}");
        }
    })
    .await;
}

/// One run for a key, on one of the machines that call. A command that has failed is not run again, unless attempts are left.
#[tokio::test]
async fn once_for_a_key() {
    limit(async {
        let Some(machine) = Machine::set_up().await else { return };
        let migrate = "zlock run --once v1.2 ci/migrate -- migrate up";
        let (code, output) = machine.run(migrate).await;
        assert!(code == 0 && output.starts_with("migrate up token "), "{code} {output}");
        let (code, output) = machine.run(migrate).await;
        assert!(
            code == 122 && output.contains("/ci/migrate.once/v1.2 has run already, on "),
            "{code} {output}"
        );
        let quiet = migrate.replace("--once", "--on-done 0 --once");
        assert_eq!(machine.run(&quiet).await, (0, String::new()));
        let (code, output) = machine.run(&migrate.replace("v1.2", "v1.3")).await;
        assert!(code == 0 && output.starts_with("migrate up token "), "{code} {output}");
        machine.install("migrate", "echo attempt $ZLOCK_ATTEMPT of $ZLOCK_TICK.; exit 3");
        let fails = migrate.replace("--once v1.2", "--attempts 2 --once v1.4");
        for attempt in 1..=2 {
            assert_eq!(machine.run(&fails).await, (3, format!("attempt {attempt} of .\n")));
        }
        let (code, output) = machine.run(&fails).await;
        assert!(code == 125 && output.contains("has failed, attempt 2 on "), "{code} {output}");
        let (code, output) = machine.run("zlock run --tick 1d ci/migrate -- migrate up").await;
        assert!(code == 125 && output.contains("--tick"), "{code} {output}");
    })
    .await;
}

/// A lock excludes overlap only: machines that start one after the other all run the job, unless it is recorded as done.
#[tokio::test]
async fn one_at_a_time_is_not_once() {
    limit(async {
        let Some(machine) = Machine::set_up().await else { return };
        for _machine in 0..5 {
            let (code, output) = machine.run("zlock run --wait 1h jobs/backup -- backup --full").await;
            assert!(code == 0 && output.starts_with("backup --full"), "{code} {output}");
        }
        // The line in the comment of the script.
        let script = text("once.sh");
        let once = script.lines().find_map(|line| line.strip_prefix("#   ")).unwrap();
        let once = once.replace("once.sh", example("once.sh").to_str().unwrap());
        let once = format!("export DONE=.; {}", once.replace("$(date +%F)", "today"));
        machine.install("backup", "exit 3");
        assert_eq!(machine.run(&once).await, (3, String::new()), "nothing is recorded");
        machine.install("backup", "echo $* >> backups");
        for _machine in 0..5 {
            assert_eq!(machine.run(&once).await, (0, String::new()));
        }
        assert_eq!(machine.run("cat backups").await, (0, "--full\n".to_owned()));
    })
    .await;
}

#[tokio::test]
async fn systemd() {
    limit_if(have_faketime(), async {
        let Some(machine) = Machine::set_up().await else { return };
        let unit = text("zlock-backup.service");
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let start = start.replace("/usr/local/bin/", "");
        // Five machines whose clocks differ, after the random delay. Two of them fail.
        machine.install(
            "backup",
            "echo \"$*\" ${ZLOCK_TOKEN:?} $ZLOCK_ATTEMPT $ZLOCK_TICK >> backups; [ $ZLOCK_ATTEMPT = 3 ]",
        );
        for (delay, expected) in
            [("03:04:59", 1), ("03:00:00", 1), ("03:02:30", 0), ("02:59:57", 0), ("11:59:00", 0)]
        {
            let (code, output) = machine.at(delay, &start).await;
            assert_eq!(code, expected, "{delay}: {output}");
        }
        let (code, backups) = machine.run("cat backups").await;
        let runs: Vec<Vec<_>> = backups.lines().map(|line| line.split(' ').collect()).collect();
        let expected = ["1", "2", "3"].map(|attempt| ("--full", attempt, "2025-11-24T00:00:00Z"));
        assert_eq!((code, runs.iter().map(|run| (run[0], run[2], run[3])).collect()), (0, expected.to_vec()));
        assert!(runs.iter().all(|run| run[1].parse::<u64>().is_ok()), "{backups}");
        // What `KillMode=mixed` sends reaches the command.
        machine.install("backup", "trap 'echo tidy; exit 0' TERM; touch begun; while :; do sleep 0.01; done");
        let mut service = machine.sh(&format!("exec {}", start.replace("jobs/backup", "jobs/other")));
        let service = service.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let begun = || machine.folder.path().join("begun").exists().then_some(());
        support::eventually("a backup", begun).await;
        support::send(support::pid_of(&service), rustix::process::Signal::TERM);
        let output = service.wait_with_output().await.unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"tidy\n"[..]));
    })
    .await;
}

#[tokio::test]
async fn systemd_takes_the_units() {
    limit(async {
        let is_there = Command::new("systemd-analyze").arg("--version").output().await.is_ok();
        if !have((!is_there).then_some("systemd-analyze is missing (apt-get install systemd)")) {
            return;
        }
        let folder = folder();
        for name in ["zlock-backup.service", "zlock-backup.timer"] {
            // It wants the programs to be there.
            let unit = text(name).replace("/usr/local/bin/zlock", env!("CARGO_BIN_EXE_zlock"));
            std::fs::write(folder.path().join(name), unit).unwrap();
        }
        let timer = folder.path().join("zlock-backup.timer");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(folder.path().join("zlock-backup.service")).arg(timer);
        let (_, _, said) = outcome(&mut verify).await;
        assert!(!said.contains("zlock-backup"), "{said}");
    })
    .await;
}

#[tokio::test]
async fn deployment() {
    limit(async {
        let Some(machine) = Machine::set_up().await else { return };
        let script = example("deploy.sh");
        let deploy = |version: &str| {
            let mut deploy = machine.sh(&format!("exec {} {version}", script.display()));
            deploy.env("DEPLOY_TARGET", machine.folder.path());
            deploy
        };
        let current = || std::fs::read_to_string(machine.folder.path().join("current")).unwrap();
        let mut tokens = Vec::new();
        for version in ["v1", "v2"] {
            let (code, stdout, stderr) = outcome(&mut deploy(version)).await;
            assert_eq!((code, stdout), (0, format!("deployed {version}\n")), "{stderr}");
            let current = current();
            let (token, deployed) = current.trim().split_once(' ').unwrap();
            assert_eq!(deployed, version);
            tokens.push(token.parse::<u64>().unwrap());
        }
        assert!(tokens[0] < tokens[1]);
        // Without its argument it fails, and so does zlock.
        assert_ne!(outcome(&mut deploy("")).await.0, 0);
    })
    .await;
}

#[tokio::test]
async fn ci() {
    limit(async {
        let Some(machine) = Machine::set_up().await else { return };
        let job = text("ci-job.yml");
        let (_, script) = job.split_once("  script:\n").unwrap();
        let lines: Vec<_> =
            script.lines().map(|line| line.trim_start().strip_prefix("- ").unwrap()).collect();
        let mut tags = std::collections::BTreeSet::new();
        // A runner stops at the first line that fails.
        for pipeline in ["v1.2", "v1.2", "v1.3"] {
            let script = format!("export CI_COMMIT_TAG={pipeline}; {}", lines.join(" && "));
            let (code, output) = machine.run(&script.replace("./", "")).await;
            assert!(code == 0 && output.contains("migrate up token "), "{code} {output}");
            assert!(output.starts_with("ok   reachable"), "{output}");
            let announced = output.contains(&format!("announce {pipeline} token "));
            assert_eq!(announced, tags.insert(pipeline), "{output}");
        }
    })
    .await;
}

/// The page shows every file, which `cargo xtask docs` compares, so that readers see the code that is tested.
#[test]
fn the_page_shows_every_file() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src/command.md");
    let page = std::fs::read_to_string(page).unwrap();
    for entry in std::fs::read_dir(example("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let source = format!("<!-- from ../../../zlock-cli/examples/{name} -->");
        assert!(page.contains(&source), "{name}");
    }
}
