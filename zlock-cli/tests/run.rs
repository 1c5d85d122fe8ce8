//! `zlock run`: exit codes, input, output and environment. Uses a store inside the process, so no server is needed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use zlock_testkit::limit;

use crate::support::{PidFile, exit_code, folder, is_alive, is_dead, outcome, run_script, send, zlock};

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    limit(async {
        for (script, code) in [
            ("exit 0", 0),
            ("exit 7", 7),
            ("exit 255", 255),
            ("kill -KILL $$", 128 + 9),
            ("kill -TERM $$", 128 + 15),
        ] {
            let (actual, _, stderr) = outcome(&mut run_script(script)).await;
            assert_eq!((actual, &*stderr), (code, ""), "{script}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_command_that_does_not_start_has_codes_of_its_own() {
    limit(async {
        for (command, code, says) in [
            ("no-such-command-anywhere", 127, "cannot run no-such-command-anywhere: No such file"),
            ("/etc/passwd", 126, "cannot run /etc/passwd: Permission denied"),
            ("/", 126, "cannot run /: Permission denied"),
        ] {
            let args = ["run", "--url", "mem://test", "a", "--", command];
            let (actual, stdout, stderr) = outcome(&mut zlock(&args)).await;
            assert_eq!((actual, &*stdout), (code, ""), "{command}: {stderr}");
            assert!(stderr.contains(says), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    })
    .await;
}

/// Wrong command lines, and a part of the error message for each.
const BAD: [(&[&str], &str); 32] = [
    (&["run", "a", "--", "touch"], "no store: use --url or set ZLOCK_URL"),
    (&["run", "--url", "", "a", "--", "touch"], "--url"),
    (&["run", "--url", "etcd", "a", "--", "touch"], "no scheme: expected one as in mem:// or zk://host"),
    (
        &["run", "--url", "redis://h", "a", "--", "touch"],
        "redis://h: invalid url: unknown scheme: expected zk, etcd, postgres or mysql",
    ),
    (&["run", "--url", "zk://h?sesion_timeout=4s", "a", "--", "touch"], "\"sesion_timeout\""),
    (&["run", "--url", "etcd://h?ttl=1s", "a", "--", "touch"], "(ttl) of 1s"),
    (
        &["run", "--url", "zk://127.0.0.1:1", "--tick", "999ms", "a", "--", "touch"],
        "'999ms' for '--tick <PERIOD>': expected 1s to 8784h",
    ),
    (&["run", "--url", "mem://", "a", "--", "touch"], "mem:// locks nothing outside this process: use zk://"),
    (&["run", "--url", "mem://a/b", "a", "--", "touch"], "mem://a/b: invalid url: expected mem://NAME"),
    (&["run", "--url", "mem://t", "", "--", "touch"], "the root cannot be a lock"),
    (&["run", "--url", "mem://t", "a//b", "--", "touch"], "\"/a//b\""),
    (&["run", "--url", "mem://t", "a", "b", "--", "touch"], "unexpected argument 'b' found; try --help"),
    (
        &["run", "--url", "mem://t", "a", "touch"],
        "unexpected argument 'touch' found; put -- before the command",
    ),
    (&["run", "--url", "mem://t", "a"], "<COMMAND>..."),
    (&["run", "--url", "mem://t", "--wait", "5", "a", "--", "touch"], "'5' for '--wait <TIME>'"),
    (&["run", "--url", "mem://t", "--wait", "5s", "--no-wait", "a", "--", "touch"], "cannot be used with"),
    (&["run", "--url", "mem://t", "--permits", "5/4", "a", "--", "touch"], "5 of 4 permits"),
    (&["run", "--url", "mem://t", "--permits", "1/4", "--shared", "a", "--", "touch"], "cannot be used with"),
    (&["run", "--url", "mem://t", "--kill-after", "x", "a", "--", "touch"], "'x' for '--kill-after <TIME>'"),
    (&["run", "--url", "mem://t", "--kill-after", "9s", "a", "--", "touch"], "--kill-after 9s does not fit"),
    (&["run", "--url", "mem://t", "--on-busy", "256", "a", "--", "touch"], "256"),
    (&["run", "--url", "mem://t", "--attempts", "2", "a", "--", "touch"], "--tick <PERIOD>|--once <KEY>"),
    (&["run", "--url", "mem://t", "--on-done", "0", "a", "--", "touch"], "--tick <PERIOD>|--once <KEY>"),
    (
        &["run", "--url", "mem://t", "--shell", "a", "--", "touch"],
        "--shell takes the command as a single argument",
    ),
    (&["run", "--url", "mem://t", "--frobnicate", "a", "--", "touch"], "'--frobnicate'"),
    (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
    (&["top", "--url", "mem://t", "--every", "0s"], "expected a time above 0"),
    (&["bench", "--time", "0s", "mem://t"], "expected a time above 0"),
    (&["bench", "mem://t"], "add --yes to run it"),
    (
        &["record", "--url", "mem://t", "--output", "/no/such/folder/page.html", "a"],
        "/no/such/folder/page.html",
    ),
    (&["run", "--url", "file:///no/such/folder?x=1", "a", "--", "touch"], "a URL of files has no parameters"),
    (&["run", "--url", "zk://127.0.0.1:1?connect_timeout=100ms", "a", "--", "touch"], "127.0.0.1:1"),
];

#[tokio::test]
async fn bad_input_is_one_line_and_starts_nothing() {
    limit(async {
        let folder = folder();
        for (args, says) in BAD {
            let mut command = zlock(args);
            let file = folder.path().join("started");
            if args.last() == Some(&"touch") {
                command.arg(&file);
            }
            let (code, stdout, stderr) = outcome(&mut command).await;
            assert_eq!((code, &*stdout), (125, ""), "{args:?}: {stderr}");
            assert!(stderr.starts_with("zlock: ") && stderr.contains(says), "{args:?}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
            assert!(!file.exists(), "{args:?}");
        }
    })
    .await;
}

/// The tick is named when the call begins, however long connecting takes. In the middle between two ticks, that is said.
#[tokio::test]
async fn a_tick_is_named_before_connecting() {
    limit(async {
        #[allow(clippy::disallowed_methods, reason = "the tick is that of the time of day")]
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        // About 1,000 hours, so that a busy machine is still in the middle. Now is n and a half of them.
        let n = now / 3_600_000_000;
        let period = format!("{}ms", 2 * now / (2 * n + 1));
        let url = "zk://127.0.0.1:1?connect_timeout=100ms";
        let args = ["run", "--url", url, "--tick", &period, "a", "--", "true"];
        let (code, stdout, stderr) = outcome(&mut zlock(&args)).await;
        assert_eq!((code, &*stdout), (125, ""), "{stderr}");
        let said: Vec<_> = stderr.lines().collect();
        assert!(said.len() == 2 && said[0].starts_with("zlock: --tick: the nearest tick, "), "{stderr}");
        assert!(said[1].contains("127.0.0.1:1"), "{stderr}");
    })
    .await;
}

#[tokio::test]
async fn the_command_finds_the_lock_in_its_environment() {
    limit(async {
        let mut command = run_script("echo $ZLOCK_TOKEN $ZLOCK_PATH $ZLOCK_NODE $OTHER");
        // The variables of an outer lock are replaced.
        command.env("ZLOCK_TOKEN", "old").env("ZLOCK_PATH", "old").env("ZLOCK_NODE", "old");
        let (code, stdout, _) = outcome(command.env("OTHER", "kept")).await;
        let words: Vec<_> = stdout.split_whitespace().collect();
        assert_eq!((code, words.len()), (0, 4), "{stdout}");
        assert!(words[0].parse::<u64>().unwrap() > 0, "{stdout}");
        assert_eq!((words[1], words[3]), ("/a", "kept"));
        assert!(words[2].starts_with("/a/"), "{stdout}");
    })
    .await;
}

#[tokio::test]
async fn the_standard_streams_are_those_of_the_command() {
    limit(async {
        let mut command = run_script("cat; echo err >&2");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = vec![b'x'; 1 << 20];
        let expected = input.clone();
        let writer = tokio::spawn(async move { stdin.write_all(&input).await.unwrap() });
        let output = child.wait_with_output().await.unwrap();
        writer.await.unwrap();
        assert!(output.status.success() && output.stdout == expected);
        assert_eq!(output.stderr, b"err\n");
    })
    .await;
}

/// Standard error is a full pipe without a reader.
#[tokio::test]
async fn messages_that_nobody_reads_hold_nothing_up() {
    limit(async {
        let mut shell = tokio::process::Command::new("sh");
        let script =
            r#"{ head -c 65536 /dev/zero >&2; "$0" run -v --url mem://t a -- sh -c 'exit 3'; echo $?; }"#;
        shell.args(["-c", script, env!("CARGO_BIN_EXE_zlock")]).kill_on_drop(true);
        let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = String::new();
        let read = tokio::io::AsyncReadExt::read_to_string(child.stdout.as_mut().unwrap(), &mut stdout);
        read.await.unwrap();
        assert_eq!(stdout, "3\n");
    })
    .await;
}

#[tokio::test]
async fn without_a_shell_arguments_are_left_alone() {
    limit(async {
        let args = ["run", "--url", "mem://t", "a", "--", "printf", "%s.", "a  b", "*", "--help", ""];
        let (code, stdout, _) = outcome(&mut zlock(&args)).await;
        assert_eq!((code, &*stdout), (0, "a  b.*.--help.."));
    })
    .await;
}

/// Otherwise, a part of the command would run without the lock.
#[tokio::test]
async fn what_the_command_leaves_in_its_group_is_dead_before_the_lock_is_released() {
    limit(async {
        let file = PidFile::new();
        let script = format!("(trap '' TERM HUP; echo $$; exec sleep 1000) > {file} & sleep 0.1; exit 5");
        let (code, ..) = outcome(&mut run_script(&script)).await;
        assert_eq!(code, 5);
        // `$$` is the shell's own number; the sleeper is found as its group.
        let group = file.number().await;
        is_dead(group).await;
        assert!(
            rustix::process::test_kill_process_group(rustix::process::Pid::from_raw(group).unwrap()).is_err()
        );
    })
    .await;
}

/// Such a process is a daemon that the command was meant to start.
#[tokio::test]
async fn what_has_left_the_group_outlives_a_command_that_ends_by_itself() {
    limit(async {
        let file = PidFile::new();
        let script = format!("setsid sh -c 'echo $$ > {file}; exec sleep 1000' & while ! [ -s {file} ]; do sleep 0.01; done; exit 5");
        // The daemon keeps standard output and error open.
        let code = exit_code(run_script(&script).spawn().unwrap()).await;
        let daemon = file.number().await;
        assert!(code == 5 && is_alive(daemon), "{code}");
        send(daemon, Signal::KILL);
    })
    .await;
}

/// If SIGCHLD is ignored, the system reaps children by itself.
#[tokio::test]
async fn an_ignored_sigchld_is_inherited_from_some_parents() {
    limit(async {
        for _ in 0..20 {
            let mut env = tokio::process::Command::new("env");
            env.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_zlock")]);
            env.args(["run", "--url", "mem://t", "a", "--", "sh", "-c", "exit 3"]);
            assert_eq!(outcome(&mut env).await, (3, String::new(), String::new()));
        }
    })
    .await;
}

#[tokio::test]
async fn a_password_is_not_shown() {
    limit(async {
        for url in [
            "zk://me:s3cret@h",
            "etcd://me:s3cret@h/app?ttl=10s",
            "redis://me:s3?cret@h",
            "me:s3cret@h",
            "redis://h?password=s3cret",
            "h?password=s3cret",
            "etcd://h?password=s3cret",
            "zk://h?ca=/etc/ca.pem&key=s3cret",
            "mem://me:s3cret@h",
        ] {
            let commands =
                [&["run", "--url", url, "a", "--", "true"][..], &["bench", url], &["ls", "--url", url]];
            for args in commands {
                let (code, stdout, stderr) = outcome(&mut zlock(args)).await;
                assert_eq!((code, &*stdout), (125, ""), "{args:?}: {stderr}");
                assert!(!stderr.contains("s3") && !stderr.contains("cret"), "{args:?}: {stderr}");
            }
            let (_, help, _) = outcome(zlock(&["run", "--help"]).env("ZLOCK_URL", url)).await;
            let (_, _, stderr) = outcome(&mut zlock(&["bench", "postgres://me:s3cret@h/db"])).await;
            assert!(!stderr.contains("s3cret"), "{stderr}");
            assert!(help.contains("ZLOCK_URL") && !help.contains("s3"), "{help}");
        }
    })
    .await;
}

/// As `nohup` and a shell's `trap ''` require.
#[tokio::test]
async fn the_command_has_the_signals_that_zlock_was_started_with() {
    limit(async {
        let look = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
        let folder = folder();
        let file = format!("file://{}", folder.path().display());
        let traps = ["", "trap '' HUP", "trap '' INT QUIT TSTP TTOU USR1", "trap '' PIPE"];
        for (trap, url) in traps.iter().flat_map(|trap| ["mem://t", &file].map(|url| (trap, url))) {
            let zlock = format!("{trap}\nexec {} run --url {url} a -- {look}", env!("CARGO_BIN_EXE_zlock"));
            let mut shells = ["", &zlock].map(|_| tokio::process::Command::new("sh"));
            let direct = outcome(shells[0].args(["-c", &format!("{trap}\nexec {look}")])).await;
            let under_zlock = outcome(shells[1].args(["-c", &zlock])).await;
            assert_eq!(under_zlock, direct, "{trap} {url}");
        }
    })
    .await;
}

/// A command under one lock that runs another one under a second lock.
#[tokio::test]
async fn the_command_has_no_variables_of_another_lock() {
    limit(async {
        let folder = folder();
        let file = format!("file://{}", folder.path().display());
        for url in ["mem://t", &file] {
            let look = "echo $ZLOCK_PATH ${ZLOCK_TICK-none} ${ZLOCK_ATTEMPT-none}";
            let mut run = zlock(&["run", "--url", url, "--shell", "a", "--", look]);
            run.envs([
                ("ZLOCK_PATH", "/outer"),
                ("ZLOCK_TICK", "2025-11-24T21:00:00Z"),
                ("ZLOCK_ATTEMPT", "3"),
            ]);
            assert_eq!(outcome(&mut run).await, (0, "/a none none\n".to_owned(), String::new()), "{url}");
        }
    })
    .await;
}

#[tokio::test]
async fn help_and_version_are_no_failures() {
    limit(async {
        for args in [&["--help"][..], &["run", "--help"], &["--version"], &["help", "doctor"]] {
            let (code, stdout, stderr) = outcome(&mut zlock(args)).await;
            assert_eq!((code, &*stderr), (0, ""), "{args:?}");
            assert!(stdout.contains("zlock"), "{stdout}");
        }
        for command in ["run", "ls", "who", "revoke", "watch", "doctor", "bench"] {
            let (_, stdout, _) = outcome(&mut zlock(&[command, "--help"])).await;
            assert!(stdout.contains("Example"), "{stdout}");
        }
    })
    .await;
}
