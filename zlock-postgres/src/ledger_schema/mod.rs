//! The schema of the ledger: tables that only the functions use, and functions that are each one request.

use std::sync::OnceLock;

/// The version that this client needs.
pub(crate) const VERSION: i32 = 2;

/// The tables and functions, with names in double braces for what several functions have in common. It is put into their text, since
/// a call of another function costs more than most of what they do.
const TEMPLATE: &str = concat!(
    include_str!("tables.sql"),
    include_str!("incarnation.sql"),
    include_str!("sessions.sql"),
    include_str!("lanes.sql"),
    include_str!("reads.sql"),
    include_str!("fence.sql"),
    include_str!("operators.sql"),
);

/// What the names stand for. One may contain later ones.
const FRAGMENTS: [(&str, &str); 15] = [
    // Of every function that may run for a long time beside others.
    (
        "{{enter}}",
        "{{settings}}
    -- By then the client has given up. Its server process would wait on, unnoticed.
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '3s', true);
    END IF;",
    ),
    // Of a lane: the row is locked until the commit, so that a raise, and the end of the session, come before it or after it.
    (
        "{{enter_lane}}",
        "{{settings}}
    IF current_setting('lock_timeout') <> (CASE p_wire WHEN 0 THEN '50ms' ELSE '200ms' END) THEN
        PERFORM set_config('lock_timeout', CASE p_wire WHEN 0 THEN '50ms' ELSE '200ms' END, true);
    END IF;
    SELECT l.number, s.incarnation, c.grants, {{live}} INTO lane, own, grants, live
        FROM zlock.lane l JOIN zlock.session s ON s.id = l.session LEFT JOIN zlock.life c ON true
        WHERE l.session = p_session AND l.wire = p_wire FOR SHARE OF l;
    IF NOT FOUND THEN
        {{over}}
    END IF;
    IF lane <> p_lane THEN
        RAISE EXCEPTION 'the lane has another number' USING ERRCODE = 'ZL011';
    END IF;
    {{compare}}",
    ),
    // No other node has the ID, so its queue need not be compared.
    (
        "{{where_gone}}",
        "WHERE g.ctid = ANY (ARRAY(SELECT l.ctid FROM zlock.entry l WHERE l.id = ANY (p_gone) FOR UPDATE SKIP LOCKED))",
    ),
    (
        "{{busy}}",
        "GET DIAGNOSTICS done = ROW_COUNT;
    IF done < cardinality(p_gone) THEN
        RETURN QUERY SELECT 3, e.key, e.key, e.created, e.changed, e.session, e.label, e.writes, e.made, false
            FROM zlock.entry e WHERE e.id = ANY (p_gone);
    END IF;",
    ),
    // Who waits behind node `g`, up to the first node that lets no other hold beside it.
    (
        "{{behind}}",
        "SELECT x.session FROM zlock.entry x WHERE x.scope = g.scope AND x.created > g.created AND x.created <= coalesce((
            SELECT y.created FROM zlock.entry y WHERE y.scope = g.scope AND y.created > g.created
                AND y.label <> 'read' AND y.label NOT LIKE 'granted %' ORDER BY y.scope, y.created LIMIT 1), 9223372036854775807)
        ORDER BY x.scope, x.created LIMIT 64",
    ),
    // Of a session, with its incarnation and the live one.
    (
        "{{check}}",
        "SELECT s.incarnation, {{live}} INTO own, live FROM zlock.session s LEFT JOIN zlock.life c ON true WHERE s.id = p_session;
    IF NOT FOUND THEN
        {{over}}
    END IF;
    {{compare}}",
    ),
    // An incarnation begins with a connection. One that has outlived it, since a pooler is in between, is given up.
    (
        "{{compare}}",
        "IF own IS DISTINCT FROM live THEN
        PERFORM FROM zlock.incarnation i WHERE i.id = live;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the server has restarted, and nobody has connected since' USING ERRCODE = 'ZL012';
        END IF;
        PERFORM FROM zlock.incarnation a JOIN zlock.incarnation b ON b.era = a.era WHERE a.id = own AND b.id = live;
        IF NOT FOUND THEN
            {{over}}
        END IF;
    END IF;",
    ),
    ("{{over}}", "RAISE EXCEPTION 'the session is over' USING ERRCODE = 'ZL001';"),
    // Plans are kept. Without statistics, or behind a pooler, the planner would prefer others.
    (
        "{{settings}}",
        "IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation level is %, and zlock needs read committed', current_setting('transaction_isolation')
            USING ERRCODE = 'ZL005',
                HINT = format('ALTER ROLE %I SET default_transaction_isolation = ''read committed''', session_user);
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF current_setting('plan_cache_mode') <> 'force_generic_plan' THEN
        PERFORM set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
            set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true);
    END IF;",
    ),
    (
        "{{history}}",
        "SELECT live, CASE WHEN i.is_over THEN NULL ELSE i.watched END, {{quiet}}, q.last_value,
        (pg_current_wal_flush_lsn() - '0/0')::bigint FROM zlock.incarnation i, zlock.setting g, zlock.number q WHERE i.id = live",
    ),
    // What a notification says of the row `g`, if that is short enough; nothing says that anything may have changed.
    (
        "{{payload}}",
        "CASE WHEN length(g.path) + length(g.key) < 3900
            THEN concat_ws(' ', g.kind, encode(g.path, 'hex'), encode(g.key, 'hex')) ELSE '' END",
    ),
    ("{{quiet}}", "(extract(epoch FROM g.longest + g.overlap) * 1000)::bigint"),
    // The incarnation, by the row `c` of `life`. It fails on a standby.
    (
        "{{live}}",
        "hashtextextended(left(pg_walfile_name(pg_current_wal_lsn()), 8),
            interval_hash_extended(pg_postmaster_start_time() - timestamptz 'epoch', hashint8extended(c.number, c.restored)))",
    ),
    ("{{micros}}", "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"),
    ("{{random}}", "hashtextextended(gen_random_uuid()::text, 0)"),
];

/// Returns the SQL that makes the tables and functions.
pub(crate) fn objects() -> &'static str {
    static OBJECTS: OnceLock<String> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        FRAGMENTS.iter().fold(TEMPLATE.to_owned(), |sql, (name, text)| sql.replace(name, text))
    })
}

/// Returns the SQL that an operator runs once in a database, as the owner of what it creates: the schema `zlock`, and the role
/// `zlock_user`, whose members may call its functions and nothing else. Running it again replaces the functions.
///
/// # Examples
/// ```
/// let sql = zlock_postgres::schema_sql();
/// assert!(sql.contains("CREATE SCHEMA IF NOT EXISTS zlock;"));
/// ```
#[must_use]
pub fn schema_sql() -> String {
    [objects(), include_str!("roles.sql")].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the name and the text of each function.
    fn functions() -> Vec<(&'static str, &'static str)> {
        let text = objects().split("CREATE OR REPLACE FUNCTION ").skip(1);
        text.map(|text| text.split_once('(').unwrap()).collect()
    }

    #[test]
    fn every_name_stands_for_something() {
        assert!(
            !objects().contains("{{"),
            "{:?}",
            objects().split_once("{{").map(|(_, rest)| rest.get(..20))
        );
        for (name, _) in FRAGMENTS {
            let used = TEMPLATE.contains(name) || FRAGMENTS.iter().any(|(_, text)| text.contains(name));
            assert!(used, "{name}");
        }
    }

    /// A call of a function costs more than most of what one does.
    #[test]
    fn what_runs_for_each_acquisition_calls_no_function_of_ours() {
        let names: BTreeSet<_> = functions().into_iter().map(|(name, _)| name).collect();
        let hot =
            ["delete", "append", "execute", "wake", "read", "changed"].map(|name| format!("zlock.v2_{name}"));
        for (name, text) in functions().into_iter().filter(|(name, _)| hot.iter().any(|hot| hot == name)) {
            for called in &names {
                assert!(!text.contains(&format!("{called}(")), "{name} calls {called}");
            }
        }
        assert!(hot.iter().all(|hot| names.contains(hot.as_str())));
    }

    #[test]
    fn every_function_has_a_fixed_search_path() {
        for (name, text) in functions() {
            let head = text.split_once(" AS ").unwrap().0;
            let is_plain = name == "zlock.version";
            let is_fixed = head.contains("SECURITY DEFINER SET search_path = pg_catalog, pg_temp");
            assert!(is_plain || is_fixed, "{name}: {head}");
        }
    }
}
