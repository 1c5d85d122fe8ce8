//! `zlock top`: a live view of a store's locks.

mod screen;
mod view;

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use zlock::{Client, LockPath};

use self::screen::Screen;
use self::view::{Line, Order, Seen, TITLES, sorted};
use crate::args::Top;
use crate::exit::Failure;
use crate::output::print_table;
use crate::revoke::ask;
use crate::store::{Store, Target};

/// The number of locks whose queues are read in a round. Those with the most waiters come first.
const QUEUES: usize = 100;

pub(crate) async fn top(args: Top) -> Result<ExitCode, Failure> {
    let store = Target::of(&args.store)?.connect().await?;
    let client = Client::new(store.backend.clone());
    let mut seen = Seen::default();
    let done = if args.once {
        let lines = look(&store, &client, args.prefix.as_ref(), &mut seen).await?;
        let rows: Vec<_> = sorted(lines, Order::default(), "").iter().map(Line::cells).collect();
        print_table(TITLES, &rows)
    } else {
        live(&store, &client, &args, seen).await
    };
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    done.map(|()| ExitCode::SUCCESS)
}

/// Reads the locks, and the queues of those with the most waiters.
async fn look(
    store: &Store,
    client: &Client,
    prefix: Option<&LockPath>,
    seen: &mut Seen,
) -> Result<Vec<Line>, Failure> {
    let mut rows = Vec::new();
    store
        .each_lock(prefix, |row| {
            rows.push(row);
            Ok(())
        })
        .await?;
    rows.sort_by(|a, b| b.waiters.cmp(&a.waiters).then_with(|| a.path.cmp(&b.path)));
    let (mut lines, mut waiting) = (Vec::with_capacity(rows.len()), BTreeSet::new());
    for (number, row) in rows.iter().enumerate() {
        let queue = if number < QUEUES { client.mutex(&row.path)?.participants().await? } else { Vec::new() };
        waiting.extend(queue.iter().map(|one| (row.path.clone(), one.name.as_str().to_owned())));
        lines.push(seen.line(row, &queue, Instant::now()));
    }
    seen.keep(|path, node| waiting.contains(&(path.clone(), node.to_owned())));
    Ok(lines)
}

/// What the keys do.
#[derive(Debug, Default)]
struct State {
    order: Order,
    filter: String,
    /// The filter is being typed.
    is_typing: bool,
    selected: usize,
    /// The lock whose queue is shown.
    open: Option<(LockPath, Vec<[String; 7]>)>,
    /// The lock whose holders are to be asked to release it, once that is confirmed.
    asking: Option<LockPath>,
    message: String,
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Look,
    Revoke(LockPath),
    Quit,
}

async fn live(store: &Store, client: &Client, args: &Top, mut seen: Seen) -> Result<(), Failure> {
    // First of all, so that no signal leaves the terminal as it is.
    let mut signals = Signals::new()?;
    let mut screen = Screen::open()?;
    let (mut keys, mut state) = (Keys::new(), State::default());
    let mut lines = Vec::new();
    let mut next = Instant::now();
    loop {
        let shown = sorted(lines.clone(), state.order, &state.filter);
        state.selected = state.selected.min(shown.len().saturating_sub(1));
        screen.draw(&shown, &state)?;
        let wish = tokio::select! {
            biased;
            key = keys.next() => match key {
                Some(key) => press(key, &mut state, &shown),
                None => Wish::Quit,
            },
            () = signals.any() => Wish::Quit,
            () = sleep_until(next) => Wish::Look,
        };
        let is_asked = state.is_typing || state.asking.is_some() || matches!(wish, Wish::Revoke(_));
        let act = async {
            match wish {
                Wish::Nothing => {}
                Wish::Quit => return Ok::<_, Failure>(true),
                Wish::Revoke(path) => {
                    state.message = match ask(store, client, &path).await {
                        Ok(count) => format!("holders asked to release {path}: {count}"),
                        Err(error) => error.to_string(),
                    };
                }
                Wish::Look => {
                    // An outage is shown, and ends nothing.
                    match look(store, client, args.prefix.as_ref(), &mut seen).await {
                        Ok(found) => lines = found,
                        Err(failure) => state.message = failure.to_string(),
                    }
                    if let Some((path, queue)) = &mut state.open
                        && let Ok(found) = client.mutex(&*path)?.participants().await
                    {
                        *queue = seen.rows(path, &found, Instant::now());
                    }
                    next = Instant::now() + args.every;
                }
            }
            Ok(false)
        };
        // A store that does not answer must not keep the user here.
        let quits = tokio::select! {
            biased;
            () = signals.any() => true,
            done = act => done?,
            () = keys.quit(is_asked) => true,
        };
        if quits {
            return Ok(());
        }
    }
}

/// The signals that end the view.
struct Signals([Signal; 4]);

impl Signals {
    fn new() -> Result<Self, Failure> {
        let kinds =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let [a, b, c, d] = kinds.map(signal);
        let signals = || Ok([a?, b?, c?, d?]);
        let failed = |error: std::io::Error| Failure::failed(format!("cannot catch signals: {error}"));
        signals().map(Signals).map_err(failed)
    }

    async fn any(&mut self) {
        poll_fn(|cx| match self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// The keys that are pressed.
struct Keys {
    pressed: mpsc::Receiver<KeyEvent>,
    /// Those that were pressed while the store was asked.
    early: VecDeque<KeyEvent>,
}

impl Keys {
    fn new() -> Self {
        Keys { pressed: keys(), early: VecDeque::new() }
    }

    /// Returns the next key. `None` if the terminal is gone.
    async fn next(&mut self) -> Option<KeyEvent> {
        match self.early.pop_front() {
            Some(key) => Some(key),
            None => self.pressed.recv().await,
        }
    }

    /// Waits for a key that ends the view, and keeps the others. After a key that asks for text or an answer, q is part of that.
    async fn quit(&mut self, mut is_asked: bool) {
        let asks = |key: &KeyEvent| [KeyCode::Char('/'), KeyCode::Char('r')].contains(&key.code);
        is_asked |= self.early.iter().any(asks);
        while let Some(key) = self.pressed.recv().await {
            if is_interrupt(key) || key.code == KeyCode::Char('q') && !is_asked {
                return;
            }
            is_asked |= asks(&key);
            self.early.push_back(key);
        }
    }
}

fn is_interrupt(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Reads keys on a thread of its own, since a read of a terminal blocks.
fn keys() -> mpsc::Receiver<KeyEvent> {
    let (send, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        // The thread ends when nobody receives any more, within a moment.
        while !send.is_closed() {
            match event::poll(Duration::from_millis(200)) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return,
            }
            let key = match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => key,
                Ok(_) => continue,
                Err(_) => return,
            };
            if send.blocking_send(key).is_err() {
                return;
            }
        }
    });
    keys
}

fn press(key: KeyEvent, state: &mut State, shown: &[Line]) -> Wish {
    state.message.clear();
    if is_interrupt(key) {
        return Wish::Quit;
    }
    if state.is_typing {
        match key.code {
            KeyCode::Enter => state.is_typing = false,
            KeyCode::Esc => {
                state.is_typing = false;
                state.filter.clear();
            }
            KeyCode::Backspace => drop(state.filter.pop()),
            KeyCode::Char(c) => state.filter.push(c),
            _ => {}
        }
        return Wish::Nothing;
    }
    if let Some(path) = state.asking.take() {
        return if key.code == KeyCode::Char('y') { Wish::Revoke(path) } else { Wish::Nothing };
    }
    if let Some((path, _)) = &state.open {
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc => state.open = None,
            KeyCode::Char('r') => state.asking = Some(path.clone()),
            _ => {}
        }
        return Wish::Nothing;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
        KeyCode::Char('s') => state.order = state.order.next(),
        KeyCode::Char('/') => state.is_typing = true,
        KeyCode::Char('r') => state.asking = shown.get(state.selected).map(|line| line.path.clone()),
        KeyCode::Down | KeyCode::Char('j') => state.selected += 1,
        KeyCode::Up | KeyCode::Char('k') => state.selected = state.selected.saturating_sub(1),
        KeyCode::Enter => {
            state.open = shown.get(state.selected).map(|line| (line.path.clone(), Vec::new()));
            return Wish::Look;
        }
        _ => {}
    }
    Wish::Nothing
}
