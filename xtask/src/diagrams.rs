//! `cargo xtask diagrams`: draws sequence diagrams as SVG, from text files beside them.
//!
//! Events in a `.seq` file are in order of time. Each line is one of these:
//!
//! | line | meaning |
//! |---|---|
//! | `title TEXT` | the title, for readers who cannot see the picture |
//! | `lane ID TEXT` | a column |
//! | `ID -> ID : TEXT` | a request |
//! | `ID --> ID : TEXT` | a response or a notification |
//! | `ID -x ID : TEXT` | a rejected request |
//! | `note ID : TEXT` | a box on a column |
//! | `hold ID`, `end ID` | a bar: the lane holds the lock |
//! | `pause ID : TEXT`, `stale ID` | the bar changes: the lane is paused; it runs, but no longer holds the lock |
//! | `gap` | time passes |
//!
//! A `.times` file is a picture like those of `zlock record`:
//!
//! | line | meaning |
//! |---|---|
//! | `title TEXT` | the title |
//! | `lane TEXT` | a line of the picture, for a client |
//! | `holds FROM TO TEXT`, `waits ..`, `silent ..` | a bar of the last lane, with its times in milliseconds |

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Result, root};
use crate::timeline::{Lane, Span, State, Timeline};

const FOLDER: &str = "docs/guide/src/images";

/// Writes the SVG for each text.
pub(crate) fn write() -> Result {
    for (path, svg) in all()? {
        fs::write(&path, svg).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Checks that each SVG matches its text.
pub(crate) fn check() -> Result {
    let stale = all()?.into_iter().find(|(path, svg)| fs::read_to_string(path).ok().as_deref() != Some(svg));
    match stale {
        Some((path, _)) => {
            Err(format!("{} does not match its text: run cargo xtask diagrams", path.display()))
        }
        None => Ok(()),
    }
}

fn all() -> Result<Vec<(PathBuf, String)>> {
    let folder = root().join(FOLDER);
    let files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ext| ext == "seq" || ext == "times")).collect();
    paths.sort();
    paths.iter().map(|path| Ok((path.with_extension("svg"), draw(path)?))).collect()
}

fn draw(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if path.extension().is_some_and(|ext| ext == "times") {
        return Ok(times(&text).map_err(|why| format!("{}: {why}", path.display()))?.svg());
    }
    Ok(svg(&parse(&text).map_err(|why| format!("{}: {why}", path.display()))?))
}

/// Parses a `.times` file.
fn times(text: &str) -> Result<Timeline> {
    let mut timeline = Timeline::default();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let state = match command {
            "title" => {
                rest.clone_into(&mut timeline.title);
                continue;
            }
            "lane" => {
                timeline.lanes.push(Lane { name: rest.to_owned(), spans: Vec::new() });
                continue;
            }
            "holds" => State::Holds,
            "waits" => State::Waits,
            "silent" => State::Silent,
            _ => return Err(format!("not understood: {line:?}")),
        };
        let mut words = rest.splitn(3, ' ');
        let mut number = || words.next()?.parse().ok();
        let (Some(from), Some(to)) = (number(), number()) else { return Err(format!("no times: {line:?}")) };
        let text = words.next().unwrap_or_default().to_owned();
        let lane = timeline.lanes.last_mut().ok_or_else(|| format!("no lane before {line:?}"))?;
        lane.spans.push(Span { state, from, to, text });
        timeline.end = timeline.end.max(to);
    }
    Ok(timeline)
}

#[derive(Default)]
struct Diagram {
    title: String,
    /// Their IDs and headings.
    lanes: Vec<(String, String)>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrow {
    Request,
    Response,
    Refused,
}

enum Step {
    Message {
        from: usize,
        to: usize,
        arrow: Arrow,
        text: String,
    },
    Note {
        lane: usize,
        text: String,
    },
    /// A new state of a lane's bar; `None` ends it.
    Bar {
        lane: usize,
        class: Option<&'static str>,
        text: String,
    },
    Gap,
}

fn parse(text: &str) -> Result<Diagram> {
    let mut diagram = Diagram::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (command, label) = line.split_once(" : ").unwrap_or((line, ""));
        let words: Vec<_> = command.split_whitespace().collect();
        let lane = |id: &str| {
            let found = diagram.lanes.iter().position(|(known, _)| known == id);
            found.ok_or_else(|| format!("no lane {id:?} in {line:?}"))
        };
        let text = label.to_owned();
        let step = match *words.as_slice() {
            ["title", ..] => {
                line["title".len()..].trim().clone_into(&mut diagram.title);
                continue;
            }
            ["lane", id, ..] => {
                let heading = line.splitn(3, ' ').nth(2).unwrap_or(id);
                diagram.lanes.push((id.to_owned(), heading.to_owned()));
                continue;
            }
            ["gap"] => Step::Gap,
            ["note", id] => Step::Note { lane: lane(id)?, text },
            ["hold", id] => Step::Bar { lane: lane(id)?, class: Some("hold"), text },
            ["stale", id] => Step::Bar { lane: lane(id)?, class: Some("stale"), text },
            ["pause", id] => Step::Bar { lane: lane(id)?, class: Some("pause"), text },
            ["end", id] => Step::Bar { lane: lane(id)?, class: None, text },
            [from, arrow, to] => {
                let arrow = match arrow {
                    "->" => Arrow::Request,
                    "-->" => Arrow::Response,
                    "-x" => Arrow::Refused,
                    _ => return Err(format!("no such arrow: {line:?}")),
                };
                Step::Message { from: lane(from)?, to: lane(to)?, arrow, text }
            }
            _ => return Err(format!("not understood: {line:?}")),
        };
        diagram.steps.push(step);
    }
    Ok(diagram)
}

const ROW: usize = 34;
const TOP: usize = 56;
const MARGIN: usize = 24;

/// The colours follow the reader's colour scheme. The diagram has its own background, so that it is readable on any page. CSS
/// variables are avoided, because not all SVG viewers support them.
const STYLE: &str = "\
<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
  .head { font-weight: 600; }
  .since { text-anchor: start; font-style: italic; }
  .back { fill: #ffffff; stroke: #9aa4ae; }
  .lane { stroke: #9aa4ae; stroke-dasharray: 3 4; }
  .gap { stroke: #ffffff; stroke-width: 3; stroke-dasharray: 3 5; }
  .box { fill: #f3f5f7; stroke: #9aa4ae; }
  .hold { fill: #2da44e; }
  .pause { fill: #d4a72c; }
  .stale { fill: #cf222e; }
  .arrow { fill: none; stroke: #1f2328; stroke-width: 1.3; }
  .response { stroke: #59636e; stroke-dasharray: 6 4; }
  .refused { stroke: #cf222e; }
  .tip { fill: #1f2328; }
  .no { fill: #cf222e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .back { fill: #161b22; stroke: #59636e; }
    .lane { stroke: #59636e; }
    .gap { stroke: #161b22; }
    .box { fill: #262c36; stroke: #59636e; }
    .hold { fill: #3fb950; }
    .pause { fill: #d29922; }
    .stale { fill: #ff7b72; }
    .arrow { stroke: #e6edf3; }
    .response { stroke: #9198a1; }
    .refused { stroke: #ff7b72; }
    .tip { fill: #e6edf3; }
    .no { fill: #ff7b72; }
  }
</style>";

fn svg(diagram: &Diagram) -> String {
    let x = columns(diagram);
    let rows = diagram.steps.iter().filter(|step| !matches!(step, Step::Bar { .. })).count();
    let (width, height) = (x.last().map_or(0, |x| x + 90) + MARGIN, TOP + ROW * (rows + 1) + MARGIN);
    let mut head = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">\n\
         <title>{}</title>\n{STYLE}\n\
         <rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        escape(&diagram.title),
        width - 1,
        height - 1
    );
    for ((_, heading), x) in diagram.lanes.iter().zip(&x) {
        let _ = writeln!(head, "<text class=\"head\" x=\"{x}\" y=\"30\">{}</text>", escape(heading));
        let end = height - MARGIN;
        let _ = writeln!(head, "<line class=\"lane\" x1=\"{x}\" y1=\"44\" x2=\"{x}\" y2=\"{end}\"/>");
    }
    // Bars lie below arrows and notes.
    let (mut bars, mut body) = (String::new(), String::new());
    let mut open = vec![None; diagram.lanes.len()];
    let mut y = TOP;
    for step in &diagram.steps {
        match step {
            Step::Bar { lane, class, text } => {
                let now = y + ROW / 2 - 4;
                if let Some((since, class)) = open[*lane].take() {
                    bar(&mut bars, x[*lane], since, now, class);
                }
                open[*lane] = class.map(|class| (now, class));
                if !text.is_empty() {
                    let (x, y) = (x[*lane] + 10, now + ROW / 2 + 6);
                    let text = escape(text);
                    let _ = writeln!(body, "<text class=\"since\" x=\"{x}\" y=\"{y}\">{text}</text>");
                }
                continue;
            }
            Step::Gap => {
                for x in &x {
                    let (y1, y2) = (y + 6, y + ROW);
                    let _ =
                        writeln!(head, "<line class=\"gap\" x1=\"{x}\" y1=\"{y1}\" x2=\"{x}\" y2=\"{y2}\"/>");
                }
            }
            Step::Note { lane, text } => note(&mut body, x[*lane], y + ROW, text),
            Step::Message { from, to, arrow, text } => {
                message(&mut body, x[*from], x[*to], y + ROW, *arrow, text);
            }
        }
        y += ROW;
    }
    // A bar that has not ended reaches the end of its lane.
    for (lane, open) in open.into_iter().enumerate() {
        if let Some((since, class)) = open {
            bar(&mut bars, x[lane], since, y + ROW, class);
        }
    }
    format!("{head}{bars}{body}</svg>\n")
}

/// Returns the positions of the lanes: far enough apart for the labels between them.
fn columns(diagram: &Diagram) -> Vec<usize> {
    let wide = |text: &str| text.chars().count() * 15 / 2 + 28;
    let mut gaps = vec![0; diagram.lanes.len()];
    for (n, pair) in diagram.lanes.windows(2).enumerate() {
        gaps[n] = (wide(&pair[0].1) + wide(&pair[1].1)) / 2;
    }
    for step in &diagram.steps {
        match step {
            Step::Message { from, to, text, .. } => {
                let (left, right) = (*from.min(to), *from.max(to));
                let missing = wide(text).saturating_sub(gaps[left..right].iter().sum());
                for gap in &mut gaps[left..right] {
                    *gap += missing.div_ceil(right - left);
                }
            }
            Step::Note { lane, text } => {
                for n in [lane.checked_sub(1), Some(*lane)].into_iter().flatten() {
                    gaps[n] = gaps[n].max(wide(text) / 2 + 30);
                }
            }
            _ => {}
        }
    }
    // What stands on the first lane needs room to its left.
    let on_first = diagram.steps.iter().filter_map(|step| match step {
        Step::Note { lane: 0, text } => Some(wide(text) / 2),
        _ => None,
    });
    let first = MARGIN + on_first.max().unwrap_or(0).max(76);
    (0..gaps.len()).map(|n| first + gaps[..n].iter().sum::<usize>()).collect()
}

fn bar(out: &mut String, x: usize, from: usize, to: usize, class: &str) {
    let (x, height) = (x - 5, to.saturating_sub(from).max(8));
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{from}\" width=\"10\" height=\"{height}\" rx=\"3\"/>"
    );
}

fn note(out: &mut String, x: usize, y: usize, text: &str) {
    let width = text.chars().count() * 15 / 2 + 16;
    let (left, top) = (x.saturating_sub(width / 2), y - 17);
    let _ = writeln!(
        out,
        "<rect class=\"box\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"24\" rx=\"4\"/>\n\
         <text x=\"{x}\" y=\"{y}\">{}</text>",
        escape(text)
    );
}

fn message(out: &mut String, from: usize, to: usize, y: usize, arrow: Arrow, text: &str) {
    let class = match arrow {
        Arrow::Request => "",
        Arrow::Response => " response",
        Arrow::Refused => " refused",
    };
    let (start, end, back) =
        if from < to { (from + 6, to - 7, to - 16) } else { (from - 6, to + 7, to + 16) };
    let (up, down, middle) = (y - 4, y + 4, usize::midpoint(from, to));
    let _ = writeln!(out, "<path class=\"arrow{class}\" d=\"M{start} {y} H{end}\"/>");
    let _ = if arrow == Arrow::Refused {
        writeln!(
            out,
            "<path class=\"arrow refused\" d=\"M{end} {up} L{back} {down} M{end} {down} L{back} {up}\"/>"
        )
    } else {
        writeln!(out, "<path class=\"tip\" d=\"M{end} {y} L{back} {up} V{down} Z\"/>")
    };
    let (colour, y, text) = (if arrow == Arrow::Refused { " class=\"no\"" } else { "" }, y - 6, escape(text));
    let _ = writeln!(out, "<text{colour} x=\"{middle}\" y=\"{y}\">{text}</text>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        for (text, part) in [
            ("lane a A\na -> b : hello", "no lane \"b\""),
            ("lane a A\nlane b B\na => b", "no such arrow"),
            ("what", "not understood"),
        ] {
            assert!(parse(text).err().is_some_and(|why| why.contains(part)), "{text}");
        }
    }

    #[test]
    fn a_line_of_a_time_line_that_is_not_understood_is_named() {
        for (text, part) in [
            ("holds 1 2 x", "no lane before"),
            ("lane a\nholds 1 x", "no times"),
            ("lane a\nhold 1 2", "not understood"),
        ] {
            assert!(times(text).err().is_some_and(|why| why.contains(part)), "{text}");
        }
        let timeline = times("title T\nlane a b\nwaits 1 20 some text").unwrap_or_default();
        assert_eq!(
            (timeline.end, &*timeline.lanes[0].name, &*timeline.lanes[0].spans[0].text),
            (20, "a b", "some text")
        );
    }

    #[test]
    fn lanes_are_as_far_apart_as_their_labels_are_long() {
        let text = "lane a A\nlane b B\na -> b : ";
        let width = |label: &str| {
            let diagram = parse(&format!("{text}{label}")).unwrap_or_default();
            columns(&diagram)[1] - columns(&diagram)[0]
        };
        assert!(width(&"long ".repeat(20)) >= 700, "{}", width(&"long ".repeat(20)));
        assert!(svg(&parse("title A < B").unwrap_or_default()).contains("A &lt; B"));
    }
}
