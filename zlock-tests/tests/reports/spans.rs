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
    /// The handles of each span.
    handles: Vec<usize>,
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
        let is_span = metadata.is_span() && metadata.target().starts_with("zlock_");
        is_span || metadata.target() == "zlock_recipes::hold"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        let metadata = span.metadata();
        let parent = span.parent().map(index).or_else(|| seen.entered.last().copied());
        let inside = parent.map_or("", |i| seen.names[i]);
        let mut line = format!("{} {inside}>{}", metadata.level(), metadata.name());
        span.record(&mut Fields(&mut line));
        seen.lines.push(line);
        seen.names.push(metadata.name());
        seen.handles.push(1);
        Id::from_u64(seen.names.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut seen = self.0.lock().unwrap();
        let mut line = seen.names[index(id)].to_owned();
        values.record(&mut Fields(&mut line));
        seen.lines.push(line);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        let inside = seen.entered.last().map_or("", |&i| seen.names[i]);
        let mut line = format!("{} in {inside}:", event.metadata().level());
        event.record(&mut Fields(&mut line));
        seen.lines.push(line);
    }

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.push(index(id));
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.0.lock().unwrap().handles[index(id)] += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut seen = self.0.lock().unwrap();
        seen.handles[index(&id)] -= 1;
        if seen.handles[index(&id)] > 0 {
            return false;
        }
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
            "acquire outcome=\"granted\"".to_owned(),
            "end of acquire".to_owned(),
            format!("DEBUG >hold path=/a kind=\"mutex\" token={token} wait=0ns"),
            "hold outcome=\"released\"".to_owned(),
            "end of hold".to_owned(),
            "TRACE >request operation=\"delete\" path=/a".to_owned(),
            "end of request".to_owned(),
        ]
    );
}

/// Closures run inside the span of their hold, which says how it ended.
#[tokio::test(start_paused = true)]
async fn closures_run_inside_the_span_of_their_hold() {
    let spans = Spans::default();
    let _default = tracing::subscriber::set_default(spans.clone());
    let backend = MemServer::new().connect();
    let (link, client) = (backend.link(), zlock::Client::new(backend));
    let began = |name: &str| {
        let lines = &spans.0.lock().unwrap().lines;
        lines.iter().rfind(|line| line.contains(&format!(">{name}"))).cloned().unwrap_or_default()
    };
    let work = || async { drop(tracing::debug_span!(target: "zlock_test", "work")) };
    client.mutex("/a").unwrap().run(work()).await.unwrap();
    assert_eq!(began("work"), "DEBUG hold>work");
    let both = zlock::MultiLock::new(["/a", "/b"].map(|path| client.mutex(path).unwrap())).unwrap();
    both.run(work()).await.unwrap();
    assert_eq!(began("work"), "DEBUG hold>work");
    let tick: zlock::job::Tick = "2026-11-24T21:00:00Z".parse().unwrap();
    let job = client.recurring_job("/job").unwrap();
    let done = async |_| {
        work().await;
        Ok::<_, zlock::Error>(())
    };
    let _ran = job.run(tick, done).await.unwrap();
    assert_eq!(began("job"), "DEBUG hold>job tick=2026-11-24T21:00:00Z attempt=1");
    assert_eq!(began("work"), "DEBUG job>work");

    let mutex = client.mutex("/a").unwrap();
    let lost = mutex.run(async {
        link.expire();
        std::future::pending::<()>().await;
    });
    assert!(lost.await.unwrap_err().is_lock_lost());
    let lines = spans.0.lock().unwrap().lines.clone();
    for line in
        ["hold outcome=\"session_lost\"", "DEBUG in hold: message=the lock was lost reason=\"session_lost\""]
    {
        assert!(lines.iter().any(|seen| seen == line), "{lines:#?}");
    }
}

/// The same on a thread.
#[test]
fn blocking_closures_run_inside_the_span_of_their_hold() {
    let spans = Spans::default();
    let _default = tracing::subscriber::set_default(spans.clone());
    let client = zlock::blocking::connect("mem://").unwrap();
    let began = || spans.0.lock().unwrap().lines.iter().rfind(|line| line.contains(">work")).cloned();
    let work = || drop(tracing::debug_span!(target: "zlock_test", "work"));
    client.mutex("/a").unwrap().run(|_| work()).unwrap();
    assert_eq!(began().as_deref(), Some("DEBUG hold>work"));
    client.lock_template("/locks").unwrap().execute("a", |_| work()).unwrap();
    assert_eq!(began().as_deref(), Some("DEBUG hold>work"));
    let tick: zlock::job::Tick = "2026-11-24T21:00:00Z".parse().unwrap();
    let done = |_: &zlock::blocking::JobRun| {
        work();
        Ok::<_, zlock::Error>(())
    };
    let _ran = client.recurring_job("/job").unwrap().run(tick, done).unwrap();
    assert_eq!(began().as_deref(), Some("DEBUG job>work"));
    let election = client.election("/leader").unwrap().after_work(zlock::Then::Return);
    let led = election.lead(|_| {
        work();
        Ok::<_, zlock::Error>(())
    });
    assert_eq!(led.unwrap(), Some(()));
    assert_eq!(began().as_deref(), Some("DEBUG hold>work"));
    client.close().unwrap();
}
