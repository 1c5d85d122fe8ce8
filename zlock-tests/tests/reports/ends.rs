//! What is logged when a loop ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use zlock::job::{Interval, Schedule, Tick};
use zlock::mem::MemServer;
use zlock::{Client, Error, LeaderContext, Then};
use zlock_testkit::limit;

use super::spans::Fields;

/// Writes down the events of the level `INFO`.
#[derive(Clone, Default)]
struct Infos(Arc<Mutex<Vec<String>>>);

impl Infos {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Infos {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::INFO && metadata.target().starts_with("zlock_recipes")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut Fields(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A schedule without ticks.
#[derive(Debug)]
struct Never;

impl Schedule for Never {
    fn next(&self, _after: Tick) -> Option<Tick> {
        None
    }
}

fn client() -> Client {
    Client::new(MemServer::new().connect())
}

async fn every(client: &Client, schedule: impl Schedule) {
    let job = client.recurring_job("/app/job").unwrap();
    let _ended = job.every(schedule, async |_, _| Ok::<_, Error>(())).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_loop_of_a_job_is_logged_with_its_reason() {
    limit(async {
        let infos = Infos::default();
        let _default = tracing::subscriber::set_default(infos.clone());
        let end = |reason| {
            [format!(" message=a job is not run any more by this loop path=/app/job reason={reason}")]
        };
        every(&client(), Never).await;
        assert_eq!(infos.take(), end("the schedule has no more ticks"));
        let ended = client();
        let shutdown = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ended.shutdown(Duration::ZERO).await.unwrap();
        };
        tokio::join!(every(&ended, Interval::new(Duration::from_secs(3600)).unwrap()), shutdown);
        let lines = infos.take();
        assert!(lines.len() == 1 && lines[0].contains("shut"), "{lines:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_candidate_is_logged_with_its_reason() {
    limit(async {
        let infos = Infos::default();
        let _default = tracing::subscriber::set_default(infos.clone());
        let end = |reason: &str| {
            [format!(" message=a candidate does not campaign again path=/app/leader reason={reason}")]
        };
        let client = client();
        let election = client.election("/app/leader").unwrap().after_work(Then::Return);
        let work = |_: LeaderContext| async { Ok::<_, Error>(()) };
        assert!(election.lead(work).await.unwrap().is_some());
        assert_eq!(infos.take(), end("its work has ended"));
        client.shutdown(Duration::ZERO).await.unwrap();
        assert!(election.lead(work).await.unwrap().is_none());
        let lines = infos.take();
        assert!(lines.len() == 1 && lines[0].contains("shut"), "{lines:?}");
    })
    .await;
}
