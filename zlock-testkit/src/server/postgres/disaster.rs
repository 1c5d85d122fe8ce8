//! What a server suffers: a crash of one of its processes, and its data as it was before.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::layout::USER;
use super::server::PostgresServer;
use super::template;
use crate::until;

impl PostgresServer {
    /// Kills (SIGKILL) the process behind one connection, or another one if there is none. The server then ends all connections and
    /// recovers, but does not start again. Returns when it responds.
    ///
    /// # Panics
    /// Panics if it does not respond.
    pub async fn crash_process(&self) {
        let of = |condition: &str| format!("SELECT pid FROM pg_stat_activity WHERE {condition} LIMIT 1");
        let checkpointer = of("backend_type = 'checkpointer'");
        let before = self.sql(&checkpointer).await;
        let any = format!("usename = '{USER}' OR backend_type = 'background writer' ORDER BY usename");
        loop {
            let pid = self.sql(&of(&any)).await.trim_end().parse().ok().and_then(Pid::from_raw);
            match kill_process(pid.expect("a process"), Signal::KILL) {
                // Its connection has ended meanwhile.
                Err(Errno::SRCH) => {}
                killed => break killed.expect("the end of a process"),
            }
        }
        until("the server has recovered", async || {
            self.try_sql(&checkpointer).await.is_ok_and(|now| !now.is_empty() && now != before)
        })
        .await;
    }

    /// Copies the server's data as they are at one moment, for [`restore`](Self::restore).
    pub fn save(&self) {
        let [data, copy] = [self.data(), self.folder().join("copy")];
        self.pause();
        let command = ["cp".into(), "-a".into(), "-T".into(), data.into(), copy.clone().into()];
        template::run(command, self.folder(), "");
        self.resume();
        std::fs::remove_file(copy.join("postmaster.pid")).expect("the file of a running server");
    }

    /// Kills the server, puts the copy in the place of its data, and starts it again. Returns when it responds.
    ///
    /// # Panics
    /// Panics without a copy, or if the server does not start.
    pub async fn restore(&self) {
        self.stop();
        std::fs::remove_dir_all(self.data()).expect("the data");
        std::fs::rename(self.folder().join("copy"), self.data()).expect("a copy");
        self.restart().await;
    }
}
