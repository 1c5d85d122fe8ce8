//! `zlock ls`: lists the locks below a path.

use std::mem::replace;
use std::process::ExitCode;

use serde_json::json;

use crate::args::Below;
use crate::exit::{Failure, say};
use crate::output::{clean, json_text, print_row, write};
use crate::store::{Count, Row, Target};

pub(crate) async fn ls(args: Below) -> Result<ExitCode, Failure> {
    let target = Target::of(&args.store)?;
    // Connecting first: its errors say what is wrong with each server.
    let store = target.connect().await?;
    let mut list = List { is_json: args.format.json, has_begun: false };
    let unread = store.each_lock(args.prefix.as_ref(), |row| list.row(&row)).await?;
    // This client holds nothing, so a failure has no effect.
    let _ = store.backend.close().await;
    list.end(&unread)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints locks as they are found. Prints nothing before the first answer, which may be an error.
struct List {
    is_json: bool,
    has_begun: bool,
}

impl List {
    /// The table's titles. The columns are as wide, since the rows are not known yet.
    const TITLES: [&str; 3] = ["HOLDERS", "WAITERS", "LOCK"];

    fn row(&mut self, Row { path, holders, waiters }: &Row) -> Result<(), Failure> {
        let is_first = self.begin()?;
        if !self.is_json {
            return Self::print([holders.to_string(), waiters.to_string(), clean(path.as_str())]);
        }
        let lock = json!({ "lock": path.as_str(), "holders": holders, "waiters": waiters });
        write(format!("{}{}", if is_first { "" } else { "," }, json_text(&lock)).as_bytes())
    }

    fn end(mut self, unread: &Count) -> Result<(), Failure> {
        self.begin()?;
        if self.is_json {
            write(format!("],\"unreadable\":{}}}\n", unread.total).as_bytes())?;
        }
        if unread.total > 0 {
            say(&format!("paths that may not be read are left out: {unread}"));
        }
        Ok(())
    }

    /// Prints what comes before the first lock. Returns `true` the first time.
    fn begin(&mut self) -> Result<bool, Failure> {
        if replace(&mut self.has_begun, true) {
            return Ok(false);
        }
        if self.is_json {
            write(b"{\"locks\":[")?
        } else {
            Self::print(Self::TITLES.map(str::to_owned))?
        }
        Ok(true)
    }

    fn print(cells: [String; 3]) -> Result<(), Failure> {
        print_row(&cells, Self::TITLES.map(str::len))
    }
}
