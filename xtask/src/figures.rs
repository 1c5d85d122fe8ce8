//! One source for each figure about correctness: the tables of `docs/CORRECTNESS.md`. Their summary there and the guide's page
//! must say the same.

use std::collections::BTreeMap;
use std::fs;

use crate::planted;
use crate::run::{Result, root};
use crate::texts::prose_lines;

/// The file with the tables, and the guide's page.
const SOURCE: &str = "docs/CORRECTNESS.md";
const PAGE: &str = "docs/guide/src/correctness.md";

/// The first cells of the two tables that sum up.
const SUMMARY: &str = "what";
const METHODS: &str = "method";

/// The models: the row of the summary, and the first cells of the tables with all rules and with one rule left out.
const MODELS: [(&str, &str, &str); 8] = [
    ("model check", "all rules", "rule, and what is done without it"),
    ("model check of reused names", "all rules about names", "rule about names, and what is done without it"),
    (
        "model check of hand-off inside a client",
        "all rules about hand-off",
        "rule about hand-off, and what is done without it",
    ),
    (
        "model check of a client that is alone with a lock",
        "all rules about being alone",
        "rule about being alone, and what is done without it",
    ),
    (
        "model check of ZooKeeper's deadlines",
        "all rules about proof",
        "rule about proof, and what is done without it",
    ),
    (
        "model check of heartbeats",
        "all rules about heartbeats",
        "rule about heartbeats, and what is done without it",
    ),
    (
        "model check of writes of values",
        "all rules about writes of values",
        "rule about writes of values, and what is done without it",
    ),
    (
        "model check of stores without sessions",
        "all rules of the ledger",
        "rule of the ledger, and what is done without it",
    ),
];

/// The row of the summary for runs on real clusters, and the first cell of their table.
const CHAOS: (&str, &str) = ("chaos on real clusters", "run");

/// The row of the summary for planted bugs, and the first cell of their tables.
const PLANTED: (&str, &str) = ("planted bugs", "planted bug");

/// The rows of a table, with its header.
type Rows<'a> = Vec<Vec<&'a str>>;

/// Compares the two files.
pub(crate) fn check(found: &mut Vec<String>) -> Result {
    let read = |path| fs::read_to_string(root().join(path)).map_err(|e| format!("{path}: {e}"));
    let (source, page) = (read(SOURCE)?, read(PAGE)?);
    found.extend(differences(&source, &page, &planted::names()?));
    Ok(())
}

fn differences(source: &str, page: &str, planted: &[Vec<String>; 3]) -> Vec<String> {
    let (tables, mut found) = (tables(source), Vec::new());
    let summary: BTreeMap<_, _> = rows(&tables, SUMMARY).iter().map(|row| (row[0], &row[1..])).collect();
    for (row, figures) in figures(&tables, planted) {
        match summary.get(row).and_then(|cells| cells.first()) {
            Some(cell) if **cell == figures => {}
            Some(cell) => found.push(format!("{SOURCE}: {row}: {cell}, but its table has {figures}")),
            None => found.push(format!("{SOURCE}: the summary has no row {row}")),
        }
    }
    let described =
        |name: &str| rows(&tables, PLANTED.1).iter().any(|row| row[0].split(':').next() == Some(name));
    for name in planted.iter().flatten().filter(|name| !described(name)) {
        found.push(format!("{SOURCE}: the planted bug {name} has no row"));
    }
    for method in rows(&self::tables(page), METHODS) {
        // Its second cell says what the method covers.
        if summary.get(method[0]).is_none_or(|cells| **cells != method[2..]) {
            found.push(format!("{PAGE}: {}: not as in the summary of {SOURCE}", method[0]));
        }
    }
    found
}

/// Returns what the second cell of each row of the summary must be.
fn figures(tables: &BTreeMap<&str, Rows>, planted: &[Vec<String>; 3]) -> Vec<(&'static str, String)> {
    let mut figures = Vec::new();
    for (row, all, left_out) in MODELS {
        let states = digits(sum(tables, all, "states"));
        // A row is one setting, unless it says how many.
        let settings = sum(tables, all, "runs").max(rows(tables, all).len() as u64);
        let rules = rows(tables, left_out).len();
        figures.push((row, format!("{states} states, {settings} settings; each of {rules} rules left out")));
    }
    let [seeds, clusters, tests] = planted.each_ref().map(Vec::len);
    figures.push((
        PLANTED.0,
        format!("{seeds} in the simulation, {clusters} on real clusters, {tests} in tests"),
    ));
    let (row, table) = CHAOS;
    let (runs, minutes) = (rows(tables, table).len(), sum(tables, table, "minutes"));
    let clean = column(tables, table, "violations").filter(|violations| *violations == "0").count();
    figures.push((row, format!("{runs} runs, {minutes} minutes; {clean} runs without a violation")));
    figures
}

/// Returns each table by the first cell of its header.
fn tables(text: &str) -> BTreeMap<&str, Rows<'_>> {
    let mut tables = BTreeMap::<_, Rows>::new();
    let mut last: Option<(usize, &str)> = None;
    for (n, line) in prose_lines(text).filter(|(_, line)| line.starts_with('|')) {
        let cells: Vec<_> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let name = last.filter(|(before, _)| before + 1 == n).map_or(cells[0], |(_, name)| name);
        last = Some((n, name));
        if !line.chars().all(|c| "|- ".contains(c)) {
            tables.entry(name).or_default().push(cells);
        }
    }
    tables
}

/// Returns the rows of a table, without its header.
fn rows<'a, 'b>(tables: &'a BTreeMap<&str, Rows<'b>>, name: &str) -> &'a [Vec<&'b str>] {
    tables.get(name).and_then(|rows| rows.split_first()).map_or(&[], |(_, rows)| rows)
}

/// Returns the cells of a column.
fn column<'a>(
    tables: &'a BTreeMap<&str, Rows>,
    table: &str,
    name: &str,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let header = tables.get(table).and_then(|rows| rows.first());
    let at = header.and_then(|header| header.iter().position(|cell| *cell == name));
    rows(tables, table).iter().filter_map(move |row| row.get(at?).copied())
}

fn sum(tables: &BTreeMap<&str, Rows>, table: &str, name: &str) -> u64 {
    column(tables, table, name).filter_map(|cell| cell.replace(',', "").parse::<u64>().ok()).sum()
}

/// Formats a number with a comma between thousands.
fn digits(number: u64) -> String {
    let text = number.to_string();
    let groups: Vec<_> = text.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
| what | how much | result |
|---|---|---|
| chaos on real clusters | 2 runs, 15 minutes; 1 runs without a violation | fine |

| run | minutes | violations |
|---|---|---|
| 1 | 10 | 0 |
| 2 | 5 | 3 |
";

    fn of_chaos(source: &str, page: &str) -> Vec<String> {
        let all = differences(source, page, &Default::default());
        all.into_iter().filter(|what| what.contains("chaos")).collect()
    }

    #[test]
    fn a_summary_that_differs_from_its_table_is_named() {
        assert!(of_chaos(SOURCE, "").is_empty());
        assert_eq!(of_chaos(&SOURCE.replace("2 runs", "3 runs"), "").len(), 1);
        assert_eq!(of_chaos(&SOURCE.replace("| 10 |", "| 11 |"), "").len(), 1);
        assert_eq!(of_chaos(&SOURCE.replace("| 3 |", "| 0 |"), "").len(), 1);
        assert_eq!(of_chaos("", "").len(), 1);
    }

    #[test]
    fn a_page_that_differs_from_the_summary_is_named() {
        let page = "\
| method | what it covers | how much | result |
|---|---|---|---|
| chaos on real clusters | servers | 2 runs, 15 minutes; 1 runs without a violation | fine |
";
        assert!(of_chaos(SOURCE, page).is_empty());
        assert_eq!(of_chaos(SOURCE, &page.replace("fine", "good")).len(), 1);
        assert_eq!(of_chaos(SOURCE, &page.replace("15", "16")).len(), 1);
    }

    #[test]
    fn a_planted_bug_without_a_row_is_named() {
        let table = "\n| planted bug | found by |\n|---|---|\n| late: it comes late | a test |\n";
        let planted = [vec!["late".to_owned(), "lost".to_owned()], vec![], vec![]];
        let all = differences(table, "", &planted);
        let without: Vec<_> = all.iter().filter(|what| what.contains("the planted bug")).collect();
        assert!(matches!(&without[..], [one] if one.contains("lost")), "{without:?}");
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!([7, 1234, 118_605_914].map(digits), ["7", "1,234", "118,605,914"]);
    }
}
