//! The evidence that contenders of several kinds leave about one lock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder that the processes of a test share:
///
/// - `journal` has a line for each event: `ask WORKER` when a worker asks for the lock, `in WORKER NUMBER` when it has acquired it,
///   `out WORKER NUMBER` right before it releases it, and `killed PROCESS`. A line is one write at the end of the file, so the
///   lines are in the order of the events.
/// - `count` is a number. Each holder reads it for its first line, adds 1 and writes it for its second line. Only the lock
///   prevents lost updates. A writer does not truncate the file: the number never gets shorter, so the file always has one.
/// - `stop` exists once workers should end.
///
/// Workers are named `KIND-NUMBER.NUMBER`. The part before the dot is the name of the process.
#[derive(Clone, Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// Begins a journal in an empty folder.
    ///
    /// # Panics
    /// If files cannot be written.
    #[must_use]
    pub fn begin(folder: &Path) -> Self {
        std::fs::write(folder.join("count"), "0").expect("a writable folder");
        std::fs::write(folder.join("journal"), "").expect("a writable folder");
        Journal(folder.to_owned())
    }

    /// Opens the journal of another process.
    #[must_use]
    pub fn open(folder: impl Into<PathBuf>) -> Self {
        Journal(folder.into())
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Appends a line.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn note(&self, line: &str) {
        let mut journal = File::options().append(true).open(self.0.join("journal")).expect("the journal");
        journal.write_all(format!("{line}\n").as_bytes()).expect("the journal");
    }

    /// Writes a holder's two lines and adds 1 to the count, within a little more than a millisecond.
    ///
    /// # Panics
    /// If a file cannot be read or written.
    pub async fn hold(&self, worker: &str) {
        let count = self.0.join("count");
        let number: usize = std::fs::read_to_string(&count).expect("the count").parse().expect("a number");
        self.note(&format!("in {worker} {number}"));
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut count = File::options().write(true).open(&count).expect("the count");
        count.write_all((number + 1).to_string().as_bytes()).expect("the count");
        self.note(&format!("out {worker} {}", number + 1));
    }

    /// Makes all workers end after their next hold.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn stop(&self) {
        std::fs::write(self.0.join("stop"), "").expect("a writable folder");
    }

    /// Returns `true` after [`stop`](Journal::stop).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.join("stop").exists()
    }

    /// Returns the events so far.
    ///
    /// # Panics
    /// If the file cannot be read.
    #[must_use]
    pub fn read(&self) -> Events {
        Events::parse(&std::fs::read_to_string(self.0.join("journal")).expect("the journal"))
    }
}

/// The events of a [`Journal`]: the words of each line.
#[derive(Debug)]
pub struct Events(Vec<Vec<String>>);

impl Events {
    fn parse(text: &str) -> Self {
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Events(whole.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect())
    }

    /// Returns a worker's last event.
    #[must_use]
    pub fn last(&self, worker: &str) -> Option<&str> {
        self.0.iter().rev().find(|line| line[1] == worker).map(|line| &*line[0])
    }

    /// Returns the number of completed holds for each kind of worker.
    ///
    /// # Panics
    /// If a worker's name has no kind.
    #[must_use]
    pub fn rounds(&self) -> BTreeMap<&str, usize> {
        let mut rounds = BTreeMap::new();
        for line in self.0.iter().filter(|line| line[0] == "out") {
            *rounds.entry(kind_of(&line[1])).or_default() += 1;
        }
        rounds
    }

    /// Returns how often a worker of one kind held the lock directly after one of another, for each pair of kinds.
    ///
    /// # Panics
    /// If a worker's name has no kind.
    #[must_use]
    pub fn handovers(&self) -> BTreeMap<(&str, &str), usize> {
        let holders: Vec<_> =
            self.0.iter().filter(|line| line[0] == "in").map(|line| kind_of(&line[1])).collect();
        let mut handovers = BTreeMap::new();
        for pair in holders.windows(2).filter(|pair| pair[0] != pair[1]) {
            *handovers.entry((pair[0], pair[1])).or_default() += 1;
        }
        handovers
    }

    /// Returns `true` if a worker has held the lock since the last process was killed.
    #[must_use]
    pub fn had_a_turn(&self, worker: &str) -> bool {
        self.0
            .iter()
            .rev()
            .take_while(|line| line[0] != "killed")
            .any(|line| line[0] == "in" && line[1] == worker)
    }

    /// Returns how often a worker held the lock together with another live one, and how often an update was lost. A killed
    /// process no longer holds the lock, even before its session ends.
    ///
    /// # Panics
    /// If a line has no number.
    #[must_use]
    pub fn wrong(&self) -> (usize, usize) {
        let (mut overlaps, mut lost) = (0, 0);
        let mut inside: Option<&str> = None;
        // The possible contents of the file: a killed holder may or may not have counted.
        let mut counts = vec![0];
        for line in &self.0 {
            match &*line[0] {
                "in" => {
                    overlaps += usize::from(inside.is_some());
                    let number = number(line);
                    lost += usize::from(!counts.contains(&number));
                    (inside, counts) = (Some(line[1].as_str()), vec![number + 1]);
                }
                "out" => {
                    overlaps += usize::from(inside != Some(&line[1]));
                    (inside, counts) = (None, vec![number(line)]);
                }
                "killed" if inside.is_some_and(|worker| process_of(worker) == line[1]) => {
                    inside = None;
                    counts.push(counts[0] - 1);
                }
                _ => {}
            }
        }
        (overlaps, lost)
    }
}

fn number(line: &[String]) -> usize {
    line[2].parse().expect("a number")
}

fn kind_of(worker: &str) -> &str {
    worker.rsplit_once('-').expect("KIND-NUMBER.NUMBER").0
}

fn process_of(worker: &str) -> &str {
    worker.rsplit_once('.').map_or(worker, |(process, _)| process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(events: &[&str]) -> (usize, usize) {
        Events::parse(&(events.join("\n") + "\nin half")).wrong()
    }

    #[test]
    fn overlaps_and_lost_updates_are_found() {
        assert_eq!(
            wrong(&["ask a-0.0", "ask b-1.0", "in a-0.0 0", "out a-0.0 1", "in b-1.0 1", "out b-1.0 2"]),
            (0, 0)
        );
        assert_eq!(wrong(&["in a-0.0 0", "in b-1.0 1", "out b-1.0 2"]), (1, 0));
        assert_eq!(wrong(&["in a-0.0 0", "in b-1.0 0", "out a-0.0 1", "out b-1.0 1"]), (3, 1));
        assert_eq!(wrong(&["in a-0.0 0", "out a-0.0 1", "in b-1.0 0"]), (0, 1));
    }

    #[test]
    fn a_killed_holder_may_have_counted_and_holds_no_longer() {
        for number in ["0", "1"] {
            assert_eq!(wrong(&["in a-0.0 0", "killed a-0", &format!("in b-1.0 {number}")]), (0, 0));
        }
        assert_eq!(wrong(&["in a-0.0 0", "killed a-0", "in b-1.0 2"]), (0, 1));
        assert_eq!(wrong(&["in a-0.0 0", "killed a-2", "in b-1.0 1"]), (1, 0));
    }

    #[test]
    fn turns_and_rounds_are_counted() {
        let events = Events::parse("in a-b-0.0 0\nout a-b-0.0 1\nkilled c-1\nin d-2.0 1\nask a-b-0.0\n");
        assert_eq!(events.rounds(), [("a-b", 1)].into());
        assert_eq!(["a-b-0.0", "d-2.0"].map(|worker| events.had_a_turn(worker)), [false, true]);
        assert_eq!(events.last("a-b-0.0"), Some("ask"));
        assert_eq!(events.handovers(), [(("a-b", "d"), 1)].into());
    }
}
