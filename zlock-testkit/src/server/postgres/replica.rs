//! Streaming replicas, which can be cut off and promoted.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use zlock_suite::proxy::Port;

use super::super::daemon::retry_taken_ports;
use super::layout::{OPERATOR, data};
use super::psql::psql;
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
        self.back_up_to(&data(folder.path()));
        let replica = PostgresServer::new(folder, Port::reserve(), self.password());
        let own_clock = self.has_own_clock();
        if own_clock {
            replica.set_clock(0);
        }
        replica.launch(|| replica.command(own_clock));
        replica
    }

    /// Copies the data of this running server for a replica. `pg_basebackup` is not in each package of a server.
    fn back_up_to(&self, copy: &Path) {
        let statements = format!(
            "SELECT pg_backup_start('replica', true)\n\\g /dev/null\n\\! cp -a -T '{}' '{}'\n\
             SELECT labelfile FROM pg_backup_stop(false)",
            self.data().display(),
            copy.display(),
        );
        let label = psql(self.addr(), OPERATOR, &statements).unwrap_or_else(|error| panic!("{error}"));
        std::fs::remove_file(copy.join("postmaster.pid")).expect("the file of a running server");
        let primary =
            format!("primary_conninfo = 'host=127.0.0.1 port={} user={OPERATOR}'\n", self.addr().port());
        for (name, text) in
            [("backup_label", &*label), ("standby.signal", ""), ("postgresql.auto.conf", &*primary)]
        {
            let file = copy.join(name);
            let mut file = File::options().create(true).append(true).open(&file).expect("a file of the copy");
            file.write_all(text.as_bytes()).expect("a line in it");
        }
        for name in ["backup_label", "standby.signal"] {
            template::give_to_server(&copy.join(name));
        }
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
