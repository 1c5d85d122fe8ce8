//! Streaming replicas, which can be cut off and promoted.

use zlock_suite::proxy::Port;

use super::super::daemon::retry_taken_ports;
use super::super::programs::Programs;
use super::layout::{OPERATOR, data};
use super::server::PostgresServer;
use super::template;
use crate::until;

impl PostgresServer {
    /// Starts a replica of this server, which streams its log and takes reads. Returns when it responds. It is a server of its
    /// own: this one may be stopped before it.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn replica(&self) -> PostgresServer {
        let primary = self.clone();
        let start = move || {
            retry_taken_ports(|| {
                let replica = primary.launch_replica();
                replica.wait_until_ready().map(|()| replica)
            })
        };
        tokio::task::spawn_blocking(start).await.expect("a start")
    }

    fn launch_replica(&self) -> PostgresServer {
        let folder = template::make_folder(false);
        let backup = [
            Programs::selected().postgres("pg_basebackup").into(),
            "-D".into(),
            data(folder.path()).into(),
            "-h".into(),
            "127.0.0.1".into(),
            "-p".into(),
            self.addr().port().to_string().into(),
        ];
        let options = ["-U", OPERATOR, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"];
        template::run(backup.into_iter().chain(options.map(Into::into)), folder.path(), "");
        let replica = PostgresServer::new(folder, Port::reserve(), self.password());
        let own_clock = self.has_own_clock();
        if own_clock {
            replica.set_clock(0);
        }
        replica.launch(|| replica.command(own_clock));
        replica
    }

    /// Waits until this replica has applied all that `primary` has committed so far.
    ///
    /// # Panics
    /// Panics if it does not.
    pub async fn catch_up(&self, primary: &PostgresServer) {
        let end = primary.sql("SELECT pg_current_wal_lsn()").await;
        let query = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", end.trim_end());
        until("the replica has caught up", async || self.sql(&query).await.trim_end() == "t").await;
    }

    /// Cuts this replica off from its primary. What the primary commits from now on is lost when the replica is promoted.
    ///
    /// # Panics
    /// Panics if the replica does not respond.
    pub async fn cut_off(&self) {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf();").await;
        let query = "SELECT count(*) FROM pg_stat_wal_receiver";
        until("the replica is cut off", async || self.sql(query).await.trim_end() == "0").await;
    }

    /// Promotes this replica. Returns when it takes writes.
    ///
    /// # Panics
    /// Panics if it does not become a primary.
    pub async fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)").await, "t\n", "{}", self.log());
    }
}
