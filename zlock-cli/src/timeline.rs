//! A picture of a lock over time: when each client waited for it, and when it held it. As an SVG, or as a page around one.
//!
//! Uses the standard library only, since zlock-proof and xtask include this file.

use std::fmt::Write;

/// Milliseconds since the beginning of the picture.
pub(crate) type Ms = u64;

/// What a picture shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    pub(crate) title: String,
    /// When the picture ends.
    pub(crate) end: Ms,
    /// A line for each client.
    pub(crate) lanes: Vec<Lane>,
    /// What concerns all clients.
    pub(crate) bands: Vec<Band>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) spans: Vec<Span>,
}

/// A client's state for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) state: State,
    pub(crate) from: Ms,
    pub(crate) to: Ms,
    /// Shown beside the mouse pointer.
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waits,
    Holds,
    /// The client is paused, cut off or killed.
    Silent,
}

/// A time that is marked in all lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Band {
    pub(crate) from: Ms,
    pub(crate) to: Ms,
    /// `true` if clients held the lock that exclude each other.
    pub(crate) is_violation: bool,
    pub(crate) text: String,
}

/// The width of a picture that fits a page.
const NARROW: u64 = 720;
/// The widest picture. A longer time has less room for each second.
const WIDE: u64 = 6000;
/// The least width of a second in a picture that is too wide for a page.
const SECOND: u64 = 24;

const LEFT: u64 = 170;
const TOP: u64 = 62;
const ROW: u64 = 30;
/// The approximate width of a character.
const CHAR: u64 = 7;

const STYLE: &str = "\
<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .name { text-anchor: end; }
  .tick { text-anchor: middle; }
  .back { fill: #ffffff; stroke: #9aa4ae; }
  .grid { stroke: #d1d9e0; }
  .waits { fill: #9aa4ae; }
  .holds { fill: #2da44e; }
  .silent { fill: #d4a72c; }
  .band { fill: #9aa4ae; fill-opacity: 0.25; }
  .violation { fill: #cf222e; fill-opacity: 0.35; stroke: #cf222e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .back { fill: #161b22; stroke: #59636e; }
    .grid { stroke: #30363d; }
    .waits { fill: #59636e; }
    .holds { fill: #3fb950; }
    .silent { fill: #d29922; }
    .violation { fill: #ff7b72; fill-opacity: 0.4; stroke: #ff7b72; }
  }
</style>";

impl Timeline {
    fn width(&self) -> u64 {
        (self.end * SECOND / 1000).clamp(NARROW, WIDE)
    }

    /// The horizontal position of a time.
    fn x(&self, at: Ms) -> u64 {
        LEFT + at.min(self.end) * self.width() / self.end.max(1)
    }

    /// Draws the picture.
    pub(crate) fn svg(&self) -> String {
        let rows = self.lanes.len() as u64 * ROW;
        let (width, height) = (LEFT + self.width() + 30, TOP + rows + 40);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">\n\
             <title>{title}</title>\n{STYLE}\n\
             <rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
             <text class=\"title\" x=\"20\" y=\"28\">{title}</text>\n",
            width - 1,
            height - 1,
            title = escape(&self.title),
        );
        self.legend(&mut svg);
        self.axis(&mut svg, TOP + rows);
        for (lane, y) in self.lanes.iter().zip((TOP..).step_by(ROW as usize)) {
            let (name, middle) = (escape(&shortened(&lane.name, LEFT - 30)), y + ROW / 2 + 4);
            let _ = writeln!(svg, "<text class=\"name\" x=\"{}\" y=\"{middle}\">{name}</text>", LEFT - 10);
            for span in &lane.spans {
                self.span(&mut svg, span, y);
            }
        }
        for band in &self.bands {
            let class = if band.is_violation { "violation" } else { "band" };
            self.rect(&mut svg, class, (band.from, band.to), (TOP, rows), &band.text);
        }
        svg + "</svg>\n"
    }

    /// A bar's height also tells its state, for readers without colours.
    fn span(&self, svg: &mut String, span: &Span, y: u64) {
        let (class, inset) = match span.state {
            State::Waits => ("waits", ROW / 2 - 3),
            State::Holds => ("holds", 4),
            State::Silent => ("silent", 9),
        };
        let place = (y + inset, ROW - 2 * inset);
        self.rect(svg, class, (span.from, span.to), place, &span.text);
    }

    fn rect(&self, svg: &mut String, class: &str, (from, to): (Ms, Ms), (y, height): (u64, u64), text: &str) {
        let (x, text) = (self.x(from), escape(text));
        // However short, it can be seen.
        let width = self.x(to).saturating_sub(x).max(2);
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"><title>{text}</title></rect>"
        );
    }

    fn legend(&self, svg: &mut String) {
        let has = |state| self.lanes.iter().any(|lane| lane.spans.iter().any(|span| span.state == state));
        let known = [
            ("holds", "holds the lock", 4, has(State::Holds)),
            ("waits", "waits", 7, has(State::Waits)),
            ("silent", "cut off or paused", 5, has(State::Silent)),
            ("band", "not seen", 2, self.bands.iter().any(|band| !band.is_violation)),
            ("violation", "two holders", 2, self.bands.iter().any(|band| band.is_violation)),
        ];
        let mut x = LEFT;
        for (class, text, inset, _) in known.into_iter().filter(|known| known.3) {
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"24\" height=\"{}\"/><text class=\"small\" x=\"{}\" y=\"53\">{text}</text>",
                40 + inset,
                18 - 2 * inset,
                x + 30
            );
            x += 30 + CHAR * text.len() as u64 + 20;
        }
    }

    fn axis(&self, svg: &mut String, bottom: u64) {
        let step = step(self.end, self.width());
        for at in (0..=self.end).step_by(step as usize) {
            let x = self.x(at);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{bottom}\"/><text class=\"small tick\" x=\"{x}\" y=\"{}\">{}</text>",
                bottom + 20,
                shown(at, step)
            );
        }
    }
}

/// Returns a page with pictures, which needs no other file. `text` stands above them.
pub(crate) fn page(title: &str, text: &[&str], pictures: &[Timeline]) -> String {
    let is_wide = pictures.iter().any(|picture| picture.width() > NARROW);
    let hint = is_wide.then_some("A picture that is wider than the page can be scrolled sideways.");
    let text: String =
        text.iter().copied().chain(hint).map(|line| format!("<p>{}</p>\n", escape(line))).collect();
    let pictures: String =
        pictures.iter().map(|picture| format!("<div>\n{}</div>\n", picture.svg())).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n\
         <style>body {{ font: 15px system-ui, sans-serif; color-scheme: light dark; margin: 1em }} \
         div {{ overflow-x: auto; margin: 1em 0 }}</style>\n\
         </head>\n<body>\n{text}{pictures}</body>\n</html>\n",
        escape(title)
    )
}

/// Returns the time between two marks of the axis, so that their texts have room.
fn step(end: Ms, width: u64) -> Ms {
    let least = end * 80 / width.max(1);
    let rounds = (0..).flat_map(|power| [1, 2, 5].map(|digit: u64| digit * 10_u64.pow(power)));
    rounds.take(48).find(|step| *step >= least).unwrap_or(least).max(1)
}

/// Formats a time in seconds, with as many decimals as the step needs.
fn shown(at: Ms, step: Ms) -> String {
    let decimals = match step {
        step if step.is_multiple_of(1000) => 0,
        step if step.is_multiple_of(100) => 1,
        _ => 3,
    };
    format!("{:.decimals$} s", at as f64 / 1000.0)
}

/// Cuts a name so that it fits.
fn shortened(name: &str, width: u64) -> String {
    let max = (width / CHAR) as usize;
    if name.chars().count() <= max {
        name.to_owned()
    } else {
        name.chars().take(max - 2).chain("..".chars()).collect()
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn timeline(end: Ms) -> Timeline {
        let span = |state, from, to| Span { state, from, to, text: "<b>".into() };
        let spans = vec![span(State::Waits, 0, end / 2), span(State::Holds, end / 2, end)];
        Timeline {
            title: "a & b".into(),
            end,
            lanes: vec![Lane { name: "x".into(), spans }],
            bands: Vec::new(),
        }
    }

    #[test]
    fn names_of_others_are_text() {
        let page = page("<script>", &["<script>"], &[timeline(1000)]);
        assert!(
            page.contains("a &amp; b") && page.contains("&lt;b&gt;") && page.contains("&lt;script&gt;"),
            "{page}"
        );
        assert!(!page.contains("<b>") && !page.contains("<script"), "{page}");
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let page = page("x", &[], &[timeline(1000)]).replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains("http") && !page.contains("src=") && !page.contains("url("), "{page}");
    }

    #[test]
    fn times_have_their_places() {
        let timeline = timeline(10_000);
        assert_eq!([0, 5_000, 10_000, 99_000].map(|at| timeline.x(at)), [170, 530, 890, 890]);
        assert!(
            timeline.svg().contains("class=\"holds\" x=\"530\" y=\"66\" width=\"360\""),
            "{}",
            timeline.svg()
        );
    }

    #[test]
    fn only_a_long_time_makes_a_picture_that_scrolls() {
        for (end, scrolls) in [(30_000, false), (31_000, true), (86_400_000, true)] {
            let timeline = timeline(end);
            assert_eq!(page("x", &[], from_ref(&timeline)).contains("scrolled sideways"), scrolls, "{end}");
            let marks = timeline.svg().matches("<line").count() as u64;
            assert!((5..=timeline.width() / 80 + 1).contains(&marks), "{marks} of {end}");
        }
    }

    #[test]
    fn marks_are_round() {
        for (end, step_of, text) in
            [(500, 100, "0.2 s"), (10_000, 2_000, "2 s"), (30_000, 5_000, "5 s"), (3_600_000, 50_000, "50 s")]
        {
            let width = timeline(end).width();
            assert_eq!(step(end, width), step_of, "{end}");
            assert_eq!(shown(if end == 500 { 200 } else { step_of }, step_of), text);
        }
    }
}
