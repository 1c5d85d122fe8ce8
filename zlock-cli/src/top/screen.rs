//! Draws `zlock top`. Without colours, so that it looks the same on every terminal.

use std::io::{IsTerminal as _, stdin, stdout};

use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line as Text;
use ratatui::widgets::{Row, Table, TableState};

use super::State;
use super::view::{Line, OF_QUEUE, TITLES};
use crate::exit::Failure;
use crate::output::{clean, lost};

/// The terminal, which is restored when this is dropped.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn open() -> Result<Self, Failure> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Err(Failure::failed("top needs a terminal; top --once prints the locks"));
        }
        ratatui::try_init().map(Screen).map_err(|error| lost(&error))
    }

    pub(super) fn draw(&mut self, lines: &[Line], state: &State) -> Result<(), Failure> {
        self.0.draw(|frame| draw(frame, lines, state)).map(|_| ()).map_err(|error| lost(&error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn draw(frame: &mut Frame<'_>, lines: &[Line], state: &State) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let filter = if state.filter.is_empty() { String::new() } else { format!(", with {:?}", state.filter) };
    let title = match &state.open {
        Some((path, _)) => format!("zlock top  {}", clean(path.as_str())),
        None => format!("zlock top  {} locks, by {}{filter}", lines.len(), state.order.name()),
    };
    frame.render_widget(Text::styled(title, bold), head);
    match &state.open {
        Some((_, queue)) => {
            // A token is of use only as a whole.
            let token = queue.iter().map(|row| row[2].len()).fold(OF_QUEUE[2].len(), usize::max);
            let token = u16::try_from(token).unwrap_or(u16::MAX);
            let widths = [5, 10, token, 6, 6, 7].map(Constraint::Length);
            let widths = widths.into_iter().chain([Constraint::Fill(1)]);
            let table = Table::new(queue.iter().cloned().map(Row::new), widths);
            frame.render_widget(table.header(Row::new(OF_QUEUE).style(bold)), body);
        }
        None => {
            let rows = lines.iter().map(|line| Row::new(line.cells()));
            let widths = [5, 5, 6, 5]
                .map(Constraint::Length)
                .into_iter()
                .chain([Constraint::Fill(3), Constraint::Fill(2)]);
            let table = Table::new(rows, widths)
                .header(Row::new(TITLES).style(bold))
                .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
            let mut selected = TableState::new().with_selected(Some(state.selected));
            frame.render_stateful_widget(table, body, &mut selected);
        }
    }
    frame.render_widget(Text::raw(last_line(state)), foot);
}

fn last_line(state: &State) -> String {
    if state.is_typing {
        return format!("filter: {}_  Enter keeps it, Esc clears it", state.filter);
    }
    if let Some(path) = &state.asking {
        return format!("ask the holders of {} to release it? y, or any other key", clean(path.as_str()));
    }
    if !state.message.is_empty() {
        return clean(&state.message);
    }
    let first = if state.open.is_some() { "Esc back" } else { "Enter queue  s sort  / filter" };
    format!("{first}  r ask to release  q quit")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use zlock::LockPath;

    use super::*;

    fn shown(width: u16, state: &State) -> Vec<String> {
        let path = LockPath::new("/jobs/a-name-that-is-longer-than-it-should-be/and-goes-on").unwrap();
        let waited = Some(Duration::from_secs(7));
        let held = Some(Duration::from_secs(70));
        let line = Line { path, holders: 1, waiters: 12, waited, held, holder: "web1 pid 7".into() };
        let mut terminal = Terminal::new(TestBackend::new(width, 5)).unwrap();
        terminal.draw(|frame| draw(frame, &[line], state)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content.chunks(usize::from(width));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn eighty_columns_are_enough() {
        let rows = shown(80, &State::default());
        assert_eq!(rows[0], "zlock top  1 locks, by waiters");
        assert_eq!(rows[1], "HOLD  WAIT  QUEUED HELD  LOCK                             HOLDER");
        assert!(rows[2].starts_with("1     12    7s     70s   /jobs/a-name-that"), "{rows:?}");
        assert!(rows[2].ends_with("web1 pid 7"), "{rows:?}");
        assert_eq!(rows[4], "Enter queue  s sort  / filter  r ask to release  q quit");
    }

    #[test]
    fn a_token_is_shown_whole() {
        let row = ["holds", "exclusive", "12345678901234567890.17", "7s", "3s", "no", "web1 pid 7"];
        let open = Some((LockPath::new("/a").unwrap(), vec![row.map(str::to_owned)]));
        let rows = shown(80, &State { open, ..State::default() });
        assert!(rows[2].contains("12345678901234567890.17 7s     3s"), "{rows:?}");
    }

    #[test]
    fn a_request_is_confirmed_first() {
        let asking = Some(LockPath::new("/jobs/backup").unwrap());
        let state = State { asking, ..State::default() };
        assert!(shown(80, &state)[4].starts_with("ask the holders of /jobs/backup to release it? y"));
    }
}
