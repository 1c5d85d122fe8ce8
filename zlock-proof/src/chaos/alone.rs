//! MariaDB: one server.

use std::time::Duration;

use zlock_testkit::{MariaDb, mysql};

/// Commits are flushed once a second, so that a kill loses some that were confirmed.
const LOSSY: [&str; 1] = ["--innodb-flush-log-at-trx-commit=0"];

/// A server that nobody replaces.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) server: MariaDb,
    /// Whether the end of the server ends all sessions.
    pub(crate) is_lossy: bool,
}

impl Alone {
    /// Starts the server, with the schema. Nothing is locked for the session timeout after commits may have been lost. What the server
    /// may lose is found out from its settings.
    pub(crate) async fn start(session: Duration, is_lossy: bool) -> Self {
        let server = MariaDb::start_on_disk(if is_lossy { &LOSSY } else { &[] }).await;
        drop(mysql::backend(&server).await);
        let longest = session.as_millis().to_string();
        mysql::sql::<u8>(&server, "UPDATE zlock_setting SET longest = ?", (longest,)).await;
        Alone { server, is_lossy }
    }

    /// Returns what former clients have left. Ends the sessions of killed ones as a client does that finds them.
    pub(crate) async fn residue(&self) -> Vec<String> {
        for id in mysql::sql(&self.server, "CALL zlock_silent(1000)", ()).await {
            mysql::try_end_session(&self.server, id).await.expect("the end of a session");
        }
        let mut left = Vec::new();
        for (what, table) in [
            ("nodes", "zlock_entry WHERE session IS NOT NULL"),
            ("connections", "information_schema.PROCESSLIST WHERE user = 'zlock'"),
            (
                "receipts of no session",
                "zlock_receipt r WHERE NOT EXISTS (SELECT 1 FROM zlock_session s WHERE s.id = r.session)",
            ),
            (
                "stripes with a wrong number of entries",
                "zlock_stripe t LEFT JOIN (SELECT stripe, COUNT(*) AS living FROM zlock_entry GROUP BY stripe) e
                    ON e.stripe = t.n WHERE t.living <> COALESCE(e.living, 0)",
            ),
        ] {
            let count: Vec<u64> =
                mysql::sql(&self.server, &format!("SELECT COUNT(*) FROM {table}"), ()).await;
            if count != [0] {
                left.push(format!("{} {what}", count[0]));
            }
        }
        left
    }
}
