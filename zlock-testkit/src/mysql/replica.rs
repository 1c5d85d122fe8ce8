//! Replicas, which can be cut off and promoted.

use super::sql;
use crate::MariaDb;

/// Makes a server a replica of another one, and read-only. Both were started with `--log-bin` and with a `--server-id` of their own. What
/// the primary has executed before its log was on is missing.
///
/// # Panics
/// Panics if a server refuses it.
pub async fn follow(replica: &MariaDb, primary: &MariaDb) {
    sql::<u8>(replica, "SET GLOBAL read_only = 1", ()).await;
    let primary = primary.addr();
    let change = format!(
        "CHANGE MASTER TO MASTER_HOST = '{}', MASTER_PORT = {}, MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1,
        MASTER_USE_GTID = slave_pos, MASTER_DEMOTE_TO_SLAVE = 1",
        primary.ip(),
        primary.port(),
    );
    sql::<u8>(replica, &change, ()).await;
    sql::<u8>(replica, "START SLAVE", ()).await;
}

/// Waits until a replica has applied all that its primary has committed so far.
///
/// # Panics
/// Panics if it does not.
pub async fn catch_up(replica: &MariaDb, primary: &MariaDb) {
    let end: Vec<String> = sql(primary, "SELECT @@global.gtid_binlog_pos", ()).await;
    let waited: Vec<i64> = sql(replica, "SELECT MASTER_GTID_WAIT(?, 30)", (&end[0],)).await;
    assert_eq!(waited, [0], "the replica has not caught up");
}

/// Cuts a replica off from its primary. What the primary commits from now on is lost when the replica is promoted.
///
/// # Panics
/// Panics if the replica does not respond.
pub async fn cut_off(replica: &MariaDb) {
    sql::<u8>(replica, "STOP SLAVE", ()).await;
}

/// Promotes a replica, which keeps running. Returns when it takes writes.
///
/// # Panics
/// Panics if the replica does not respond.
pub async fn promote(replica: &MariaDb) {
    for statement in ["STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0"] {
        sql::<u8>(replica, statement, ()).await;
    }
}
