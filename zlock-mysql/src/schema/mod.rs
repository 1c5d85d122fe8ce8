//! The schema: tables that only the procedures use, and procedures that are each one request.

use std::sync::OnceLock;

/// The version that this client needs.
pub(crate) const VERSION: i64 = 1;

/// The tables and procedures, with names in double braces for what several procedures have in common.
const TEMPLATE: &str = concat!(
    include_str!("tables.sql"),
    include_str!("incarnation.sql"),
    include_str!("sessions.sql"),
    include_str!("lanes.sql"),
    include_str!("reads.sql"),
    include_str!("fence.sql"),
    include_str!("operators.sql"),
    include_str!("open.sql"),
);

/// What the names stand for. One may contain later ones.
const FRAGMENTS: [(&str, &str); 28] = [
    // Of a lane, for any transaction.
    (
        "{{enter_lane}}",
        "{{lane}}
    {{check}}
    SELECT i.is_over INTO grants FROM zlock_incarnation i WHERE i.id = live;",
    ),
    // Of a lane, for nodes alone. The session was checked when the lane was raised: whatever ends it removes the lane or raises it.
    (
        "{{enter_fast_lane}}",
        "{{lane}}
    IF @zlock_grants IS NULL THEN
        SELECT NULLIF(i.is_over, 0) INTO @zlock_grants FROM zlock_incarnation i WHERE i.id = @zlock_live;
    END IF;",
    ),
    // The row is locked until the commit, so that a raise, and the end of the session, come before it or after it.
    (
        "{{lane}}",
        "SELECT l.number INTO number FROM zlock_lane l WHERE l.session = p_session AND l.wire = p_wire LOCK IN SHARE MODE;
    IF number IS NULL THEN
        {{over}}
    END IF;
    IF number <> p_lane THEN
        SIGNAL SQLSTATE 'ZL011' SET MESSAGE_TEXT = 'the lane has another number';
    END IF;",
    ),
    // Of a session, with its incarnation and the live one.
    (
        "{{check}}",
        "{{writable}}
    SELECT s.incarnation, i.id, i.era INTO own, live, v_era FROM zlock_session s JOIN zlock_beat b ON b.session = s.id JOIN zlock_setting g
        LEFT JOIN zlock_incarnation i ON {{live}} AND i.restored = g.restored WHERE s.id = p_session;
    IF own IS NULL THEN
        {{over}}
    END IF;
    IF live IS NULL THEN
        {{unbegun}}
    END IF;
    IF own <> live AND NOT EXISTS (SELECT 1 FROM zlock_incarnation a WHERE a.id = own AND a.era = v_era) THEN
        {{over}}
    END IF;",
    ),
    // The locks of scopes, in their order.
    (
        "{{stripes}}",
        "SELECT COUNT(t.n) INTO hit FROM JSON_TABLE(p_stripes, '$[*]' COLUMNS (n INT PATH '$')) x STRAIGHT_JOIN zlock_stripe t ON t.n = x.n FOR UPDATE;",
    ),
    // What is deleted and appended by a batch. Each of its nodes has the number of those behind it that have the same lock.
    (
        "{{gone nodes}}",
        "JSON_TABLE(p_gone, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) x STRAIGHT_JOIN zlock_entry e ON e.id = UNHEX(x.id)",
    ),
    (
        "{{new nodes}}",
        "JSON_TABLE(p_new, '$[*]' COLUMNS (id VARCHAR(32) PATH '$[0]', scope VARCHAR(32) PATH '$[1]', stripe INT PATH '$[2]',
        behind INT PATH '$[3]', floor BIGINT PATH '$[4]', path INT PATH '$[5]', path_size INT PATH '$[6]', name INT PATH '$[7]',
        name_size INT PATH '$[8]', label INT PATH '$[9]', label_size INT PATH '$[10]', data INT PATH '$[11]', data_size INT PATH '$[12]')) x",
    ),
    (
        "{{before it}}",
        "SELECT 0, p_name, {{entry}} FROM zlock_entry e FORCE INDEX (scope)
            WHERE e.scope = p_scope AND e.created >= p_floor AND e.created <= IF(p_limit < 9223372036854775807, num, p_limit)
            ORDER BY e.created DESC LIMIT p_limit;",
    ),
    ("{{over}}", "SIGNAL SQLSTATE 'ZL001' SET MESSAGE_TEXT = 'the session is over';"),
    (
        "{{unbegun}}",
        "SIGNAL SQLSTATE 'ZL012' SET MESSAGE_TEXT = 'the tables are not those of before, and nobody has connected since';",
    ),
    ("{{busy}}", "SIGNAL SQLSTATE 'ZL014' SET MESSAGE_TEXT = 'an open transaction protects a node';"),
    // The variables of a loop that removes entries.
    (
        "{{gone}}",
        "DECLARE v_id BINARY(16);
    DECLARE v_stripe INT;
    DECLARE done, hit, gone, kept BIGINT DEFAULT 0;",
    ),
    ("{{remove nodes}}", "{{remove}} nodes {{removed}} nodes;"),
    ("{{remove wanted}}", "{{remove}} wanted {{removed}} wanted;"),
    ("{{remove others}}", "{{remove}} others {{removed}} others;"),
    ("{{remove}}", "SET done = 0;
    REPEAT
        FETCH"),
    // Whoever has the lock of a stripe waits for nobody.
    (
        "{{removed}}",
        "INTO v_id, v_stripe;
        IF NOT done THEN
            SELECT COUNT(*) INTO hit FROM zlock_stripe t WHERE t.n = v_stripe FOR UPDATE;
            SELECT COUNT(*) INTO hit FROM zlock_entry e WHERE e.id = v_id AND e.session = p_session FOR UPDATE SKIP LOCKED;
            IF hit > 0 THEN
                DELETE FROM zlock_entry WHERE id = v_id;
                UPDATE zlock_stripe SET living = living - 1 WHERE n = v_stripe;
                SET gone = gone + 1;
            ELSEIF EXISTS (SELECT 1 FROM zlock_entry e WHERE e.id = v_id AND e.session = p_session) THEN
                SET kept = kept + 1;
            END IF;
        END IF;
    UNTIL done END REPEAT;
    CLOSE",
    ),
    // The number of a transaction.
    (
        "{{number}}",
        "IF num IS NULL THEN
                UPDATE zlock_stripe SET last = last + 1 WHERE n = o_stripe;
                SELECT t.last INTO num FROM zlock_stripe t WHERE t.n = o_stripe;
            END IF;",
    ),
    // After all other declarations.
    (
        "{{atomic}}",
        "DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    START TRANSACTION;
    {{writable}}",
    ),
    // A connection survives it when its server becomes a replica, and the owner of the procedures may still write.
    (
        "{{writable}}",
        "IF @@global.read_only THEN
        SIGNAL SQLSTATE 'ZL015' SET MESSAGE_TEXT = 'the server is read-only';
    END IF;",
    ),
    ("{{history}}", "i.id, IF(i.is_over, NULL, i.watched), g.longest + g.overlap"),
    ("{{entry}}", "e.name, e.created, e.changed, e.session, e.label, e.writes, e.made"),
    // The life of the server, by the variables of `zlock_here`. It is over once another server has been the primary.
    (
        "{{live}}",
        "i.server = @zlock_server AND i.started = @zlock_started AND i.n = (SELECT MAX(a.n) FROM zlock_incarnation a)",
    ),
    ("{{now}}", "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"),
    ("{{random}}", "CAST(CONV(LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 15), 16, 10) AS SIGNED)"),
    // What MariaDB and MySQL do not have in common: each executes its own comments.
    ("{{uid}}", "/*M!100600 @@global.server_uid */ /*!80000 @@global.server_uuid */"),
    ("{{status}}", "/*M!100600 information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */"),
    ("{{share}}", "/*M!100600 LOCK IN SHARE MODE */ /*!80000 FOR SHARE */"),
];

/// Returns the statements that make the tables and procedures.
pub(crate) fn statements() -> impl Iterator<Item = &'static str> {
    static ALL: OnceLock<String> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        FRAGMENTS.iter().fold(TEMPLATE.to_owned(), |sql, (name, text)| sql.replace(name, text))
    });
    all.split("\n//\n").map(str::trim).filter(|statement| !statement.is_empty())
}

/// Returns the name of the procedure that a statement creates.
pub(crate) fn procedure(statement: &str) -> Option<&str> {
    let (_, text) = statement.split_once("CREATE PROCEDURE ")?;
    text.split('(').next()
}

/// Returns the SQL that an operator runs once in a database, with the client `mysql` or `mariadb`: the tables, and the procedures. Running
/// it again replaces the procedures.
///
/// A user of zlock needs the right to execute each of the procedures, and no other.
///
/// # Examples
/// ```
/// let sql = zlock_mysql::schema_sql();
/// assert!(sql.contains("CREATE PROCEDURE zlock_begin("));
/// ```
#[must_use]
pub fn schema_sql() -> String {
    let mut sql = "SET sql_mode = 'STRICT_ALL_TABLES';\nDELIMITER //\n".to_owned();
    for statement in statements() {
        if let Some(name) = procedure(statement) {
            sql += &format!("DROP PROCEDURE IF EXISTS {name} //\n");
        }
        sql += &format!("{statement}\n//\n");
    }
    sql + "DELIMITER ;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_something() {
        let all: Vec<_> = statements().collect();
        assert!(all.len() > 30 && all.iter().all(|statement| !statement.contains("{{")), "{all:?}");
        for (name, _) in FRAGMENTS {
            let used = TEMPLATE.contains(name) || FRAGMENTS.iter().any(|(_, text)| text.contains(name));
            assert!(used, "{name}");
        }
    }

    /// Its user may then do what the owner of the tables may.
    #[test]
    fn every_procedure_has_the_rights_of_its_owner() {
        for statement in statements().filter(|statement| procedure(statement).is_some()) {
            let head = statement.split_once("BEGIN").unwrap().0;
            assert!(head.contains("SQL SECURITY DEFINER"), "{head}");
        }
    }
}
