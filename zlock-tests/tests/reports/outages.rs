//! What a client logs during an outage.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use zlock::Connect;
use zlock_testkit::{Port, limit};

/// Writes down the events of this thread, from `INFO` on.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("zlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut Fields(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Each store attempts a session about once a second, and a candidate campaigns again after each operation timeout.
#[tokio::test]
async fn an_outage_is_a_few_lines_and_not_one_for_each_attempt() {
    limit(async {
        for scheme in ["zk", "etcd", "postgres"] {
            let (port, events) = (Port::reserve(), Events::default());
            let _here = tracing::subscriber::set_default(events.clone());
            let url = format!("{scheme}://{}?connect_timeout=500ms&operation_timeout=500ms", port.addr());
            let client = Connect::to(&url).connect_lazy().unwrap();
            let election = client.election("/app/leader").unwrap();
            let lead = election.lead(async |_| Ok::<_, zlock::Error>(()));
            assert!(timeout(Duration::from_secs(8), lead).await.is_err());
            let lines = events.0.lock().unwrap().clone();
            println!("{scheme}: {lines:#?}");
            assert!((1..=6).contains(&lines.len()), "{scheme}: {lines:#?}");
        }
    })
    .await;
}
