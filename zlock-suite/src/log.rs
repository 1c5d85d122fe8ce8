//! Collects tracing events, for cases about what is logged.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// The events of this thread during the lifetime of this value, one line each: level, target, fields.
#[derive(Debug)]
pub struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Log {
    /// Begins to collect.
    #[must_use]
    pub fn of_this_thread() -> Self {
        // While the process has only one subscriber, tracing asks the first thread that reaches an event for its own. If that
        // thread has none, the event is disabled for good, for every thread. So there is always a second subscriber.
        static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
        ANOTHER.get_or_init(|| Dispatch::new(Collector(Arc::default())));
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let _guard = tracing::subscriber::set_default(Collector(lines.clone()));
        Log { lines, _guard }
    }

    /// Returns the lines that contain this text.
    #[must_use]
    pub fn with(&self, text: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Collector(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} {}", event.metadata().level(), event.metadata().target()));
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_that_comes_first_hides_nothing() {
        let log = Log::of_this_thread();
        let say = || tracing::warn!("said");
        std::thread::spawn(say).join().unwrap();
        say();
        assert_eq!(log.with("said").len(), 1);
    }
}
