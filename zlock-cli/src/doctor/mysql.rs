//! The doctor's checks of MySQL and MariaDB.

use mysql_async::Row;
use mysql_async::prelude::Queryable;
use zlock::mysql::MysqlOptions;

use super::Advice;
use super::finding::Finding;
use crate::exit::Failure;
use crate::store::mysql::failed;

pub(super) const ADVICE: Advice = Advice {
    credentials: "check the user, the host that it may come from, and the password",
    session: "give the time in the URL with a unit",
    reads: "check that this user may execute the procedures of zlock: GRANT EXECUTE ON PROCEDURE .. permits it",
    writes: "check that the server accepts writes and has free disk space",
};

pub(super) async fn examine(options: &MysqlOptions, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let mut client = options.connect_client().await?;
    let none = || Failure::failed("MySQL: an empty answer");
    let server: Option<(String, bool, u8)> = client
        .query_first("SELECT VERSION(), @@global.log_bin, @@global.innodb_flush_log_at_trx_commit")
        .await
        .map_err(failed)?;
    let (version, has_log, flushes) = server.ok_or_else(none)?;
    let name = if version.contains("MariaDB") { "" } else { "MySQL " };
    findings.push(Finding::good("server", format!("{name}{version}, which accepts writes")));
    findings.push(Finding::good(
        "durability",
        match flushes {
            1 => "each commit is flushed to the disk".to_owned(),
            other => format!(
                "innodb_flush_log_at_trx_commit is {other}, so each restart ends all sessions: see the class"
            ),
        },
    ));
    // So that the connection knows the server.
    client.query_drop("CALL zlock_open()").await.map_err(failed)?;
    let setup: Option<Row> = client.query_first("CALL zlock_setup()").await.map_err(failed)?;
    let setup = setup.ok_or_else(none)?;
    let class: String = setup.get(3).ok_or_else(none)?;
    let reason: Option<String> = setup.get(5).ok_or_else(none)?;
    findings.push(match (&*class, reason) {
        ("one-server", _) if has_log => Finding::bad(
            "class",
            "the store is of the class one-server, but the binary log is on: if a replica takes the server's place, locks that are held may be lost",
            "run zlock class --set auto, unless no replica ever takes its place",
        ),
        ("auto", None) => {
            Finding::good("class", "auto: there was no sign of a replica, so a restart ends no session")
        }
        ("auto", Some(reason)) => Finding::good("class", format!("auto, found to be lossy: {reason}")),
        _ => Finding::good("class", class),
    });
    Ok(())
}
