//! `cargo xtask pages`: measures the guide's pages in a real browser, at the widths of a phone and of a desktop.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::run::{Result, command, output, target};
use crate::texts::markdown;
use crate::{book, links};

const CHROMIUM: &str = "/usr/bin/chromium";

/// The widths of a window, in pixels.
const WIDTHS: &str = "[390, 1280]";

/// Opens each page in a frame of each width, and lists what does not fit:
/// - a page that is wider than its window, so that all of it scrolls sideways;
/// - a name in code that is broken in the middle, although it would fit on a line;
/// - a table of four columns or more whose last one, which explains, is narrower than a few words;
/// - a picture that scrolls without saying so.
const MEASURE: &str = r#"
async function measure(page, width) {
    const frame = document.createElement('iframe');
    frame.style.cssText = `width: ${width}px; height: 900px; border: 0`;
    frame.src = page;
    document.body.append(frame);
    await new Promise(done => frame.onload = done);
    await new Promise(done => setTimeout(done, 100));
    const page_ = frame.contentDocument, found = [];
    const say = what => found.push(`${page} at ${width} px: ${what}`);
    const root = page_.documentElement;
    if (root.scrollWidth > root.clientWidth) say(`the page is ${root.scrollWidth} px wide`);
    for (const code of page_.querySelectorAll('main p code, main li code, main td code')) {
        const tops = new Set([...code.getClientRects()].map(box => Math.round(box.top)));
        const text = code.textContent;
        if (tops.size > 1 && /^[\w:.()]{1,36}$/.test(text)) say(`broken: ${text}`);
    }
    for (const table of page_.querySelectorAll('main table')) {
        const cells = table.rows[0].cells, last = cells[cells.length - 1];
        const is_text = getComputedStyle(last).textAlign != 'right';
        const longest = Math.max(...[...table.rows].map(row => row.cells[row.cells.length - 1].textContent.length));
        if (cells.length > 3 && is_text && longest > 30 && last.offsetWidth < 140) {
            say(`the last column of a table is ${last.offsetWidth} px wide`);
        }
    }
    for (const image of page_.querySelectorAll('main img[src$=".svg"]')) {
        const around = image.closest('p');
        const hint = getComputedStyle(around, '::after').content;
        if (around.scrollWidth > around.clientWidth && !hint.includes('sideways')) say('a picture scrolls, unsaid');
    }
    frame.remove();
    return found;
}
(async () => {
    let found = [], count = 0;
    for (const page of PAGES) for (const width of WIDTHS) {
        found = found.concat(await measure(page, width));
        count += 1;
    }
    const out = document.createElement('pre');
    out.textContent = ['BEGIN', ...found, `END ${count}`].join('\n');
    document.body.replaceChildren(out);
})();
"#;

/// Builds the guide and measures it, and checks that each page begins with what to type.
pub(crate) fn pages() -> Result {
    if !Path::new(CHROMIUM).exists() {
        return Err("chromium is missing: sudo apt-get install --no-install-recommends chromium".into());
    }
    book::book()?;
    let folder = target().join("guide");
    let names = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<_> = names.filter_map(|file| file.ok()?.file_name().into_string().ok()).collect();
    // The first two are one long page and a list for browsers without frames.
    names.retain(|name| {
        name.ends_with(".html") && !["print.html", "toc.html", "404.html", HARNESS].contains(&&**name)
    });
    names.sort();
    let mut found = Vec::new();
    // A browser for each page: the time of one that has a page after page ends early.
    for name in &names {
        found.extend(measure(&folder, name)?);
    }
    links::early(&markdown()?, &mut found);
    found.iter().for_each(|line| println!("{line}"));
    println!("{} pages, each at 390 and 1280 px", names.len());
    if found.is_empty() { Ok(()) } else { Err(format!("{} places do not fit", found.len())) }
}

const HARNESS: &str = "measure.html";

/// Measures a page at each width.
fn measure(folder: &Path, name: &str) -> Result<Vec<String>> {
    let script = MEASURE.replace("PAGES", &format!("{:?}", [name])).replace("WIDTHS", WIDTHS);
    let harness = folder.join(HARNESS);
    let page = format!("<!doctype html><body><script>{script}</script></body>");
    fs::write(&harness, page).map_err(|e| format!("{}: {e}", harness.display()))?;
    let mut chromium =
        command(CHROMIUM, &["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]);
    chromium.args(["--virtual-time-budget=60000", "--window-size=1400,1000", "--dump-dom"]);
    chromium.arg(format!("file://{}", harness.display())).stderr(Stdio::null());
    findings(&output(chromium)?, 2)
}

/// Returns what the browser has found, if it has measured this many pages.
fn findings(dom: &str, count: usize) -> Result<Vec<String>> {
    let lines: Vec<_> =
        dom.lines().map(|line| line.trim_start_matches("<html><head></head><body><pre>")).collect();
    let begin = lines.iter().position(|line| line.ends_with("BEGIN"));
    let end = lines.iter().position(|line| line.starts_with(&format!("END {count}<")));
    match (begin, end) {
        (Some(begin), Some(end)) => Ok(lines[begin + 1..end].iter().map(|line| (*line).to_owned()).collect()),
        _ => Err(format!("the browser has not measured all pages: {dom}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_browser_found_is_read() {
        let dom =
            |lines: &str| format!("<html><head></head><body><pre>BEGIN\n{lines}END 4</pre></body></html>\n");
        assert_eq!(findings(&dom(""), 4), Ok(vec![]));
        assert_eq!(
            findings(&dom("a.html at 390 px: wide\n"), 4),
            Ok(vec!["a.html at 390 px: wide".to_owned()])
        );
        // A browser that stopped before the last page has shown nothing.
        assert!(findings(&dom(""), 6).is_err());
        assert!(findings("<html></html>", 4).is_err());
    }
}
