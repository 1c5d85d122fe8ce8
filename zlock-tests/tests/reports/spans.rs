//! The spans of an acquisition. Subscribers may count on their names, levels and fields.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zlock::mem::MemServer;

/// Writes down which spans begin and end, and inside which other one they begin.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    names: Vec<&'static str>,
    entered: Vec<usize>,
    lines: Vec<String>,
}

pub(super) struct Fields<'a>(pub(super) &'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

fn index(id: &Id) -> usize {
    usize::try_from(id.into_u64() - 1).unwrap()
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("zlock_")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        let metadata = span.metadata();
        let inside = seen.entered.last().map_or("", |&i| seen.names[i]);
        let mut line = format!("{} {inside}>{}", metadata.level(), metadata.name());
        span.record(&mut Fields(&mut line));
        seen.lines.push(line);
        seen.names.push(metadata.name());
        Id::from_u64(seen.names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.push(index(id));
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }

    fn try_close(&self, id: Id) -> bool {
        let mut seen = self.0.lock().unwrap();
        let line = format!("end of {}", seen.names[index(&id)]);
        seen.lines.push(line);
        true
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_a_hold_and_each_request_have_a_span() {
    let spans = Spans::default();
    let _default = tracing::subscriber::set_default(spans.clone());
    let client = zlock::Client::new(MemServer::new().connect());
    let guard = client.mutex("/a").unwrap().acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let lines = spans.0.lock().unwrap().lines.clone();
    assert_eq!(
        lines,
        [
            "DEBUG >acquire path=/a kind=\"mutex\"".to_owned(),
            "TRACE acquire>request operation=\"create\" path=/a".to_owned(),
            "end of request".to_owned(),
            format!("DEBUG acquire>hold path=/a kind=\"mutex\" token={token}"),
            "end of acquire".to_owned(),
            "end of hold".to_owned(),
            "TRACE >request operation=\"delete\" path=/a".to_owned(),
            "end of request".to_owned(),
        ]
    );
}
