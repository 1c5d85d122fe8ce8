//! Clients in other languages, each in a separate process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use zlock_testkit::{Process, ZooKeeper};

/// A kind of peer.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Curator,
    Kazoo,
}

/// The jar of the Debian package. Its manifest names the other jars that it needs.
const CURATOR: &str = "/usr/share/java/curator-recipes.jar";
const LOGGING: &str = "/usr/share/java/slf4j-simple.jar";

impl Kind {
    /// Returns what is missing to run this kind, and how to install it.
    pub fn missing(self) -> Option<String> {
        let (is_there, what, package) = match self {
            Kind::Curator => (Path::new(CURATOR).is_file(), CURATOR, "libcurator-recipes-java"),
            Kind::Kazoo => {
                let import = std::process::Command::new(python()).args(["-c", "import kazoo"]).output();
                let works = import.is_ok_and(|output| output.status.success());
                (works, "kazoo for python3", "python3-kazoo")
            }
        };
        let install = format!("there is no {what} (apt-get install --no-install-recommends {package})");
        (!is_there).then_some(install)
    }

    fn command(self) -> (PathBuf, Vec<String>) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/zk");
        match self {
            Kind::Curator => {
                let args = [
                    "-Xmx128m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                    "-cp",
                    &format!("{CURATOR}:{LOGGING}"),
                    &format!("{folder}/CuratorLock.java"),
                ];
                ("java".into(), args.map(str::to_owned).into())
            }
            Kind::Kazoo => (python(), vec![format!("{folder}/kazoo_lock.py")]),
        }
    }
}

/// Debian's Python, whatever else is in the path. `ZLOCK_KAZOO_PYTHON` selects another one, which must have kazoo.
fn python() -> PathBuf {
    std::env::var_os("ZLOCK_KAZOO_PYTHON").unwrap_or_else(|| "/usr/bin/python3".into()).into()
}

/// A process in another language that acquires and releases one lock on command.
pub struct Peer {
    /// Ends when this value is dropped.
    pub process: Process,
    answers: Lines<BufReader<OwnedReadHalf>>,
    commands: OwnedWriteHalf,
}

impl Peer {
    pub async fn start(kind: Kind, server: &ZooKeeper, path: &str, session: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (program, mut args) = kind.command();
        let port = listener.local_addr().unwrap().port();
        let session = session.as_millis().to_string();
        args.extend([port.to_string(), server.connect_string(), path.to_owned(), session]);
        let process = Process::spawn(program, &args, &[]);
        let (answers, commands) = listener.accept().await.unwrap().0.into_split();
        Peer { process, answers: BufReader::new(answers).lines(), commands }
    }

    pub async fn tell(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    }

    pub async fn expect(&mut self, answer: &str) {
        assert_eq!(self.answer().await.as_deref(), Some(answer));
    }

    /// Returns the next answer, or `None` if the process has ended.
    pub async fn answer(&mut self) -> Option<String> {
        self.answers.next_line().await.unwrap()
    }

    pub async fn ask(&mut self, command: &str, answer: &str) {
        self.tell(command).await;
        self.expect(answer).await;
    }

    /// Ends the process and returns its exit code.
    pub async fn end(self) -> i32 {
        // The process ends when its input does.
        drop((self.answers, self.commands));
        self.process.wait().await
    }
}
