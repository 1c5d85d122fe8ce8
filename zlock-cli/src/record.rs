//! `zlock record`: a page that shows who held a lock and who waited for it, on a time line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zlock::backend::NodeName;
use zlock::{Client, ErrorKind, Participant};

use crate::args::Record;
use crate::exit::{self, Failure, say};
use crate::output::{clean, now, utc, write};
use crate::participant::line;
use crate::store::Target;
use crate::timeline::{self, Band, Lane, Ms, Span, State, Timeline};
use crate::watch::look;

/// The pause between two attempts while the store does not respond.
const PAUSE: Duration = Duration::from_secs(1);

/// The time limit for the snapshot at the end.
const LAST: Duration = Duration::from_secs(2);

const EXPLANATION: &str = "Each line is a client, or one of several tasks of a client. The times are those at which the store \
    reported the changes to this recording. A change that lasted for less than a round trip may be missing.";

pub(crate) async fn record(args: Record) -> Result<ExitCode, Failure> {
    // First of all, so that a signal ends the recording and not the process.
    let failed = |error| Failure::failed(format!("cannot catch signals: {error}"));
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    let page = Page::new(args.output)?;
    let target = Target::of(&args.store)?;
    let store = tokio::select! {
        biased;
        _ = interrupted.recv() => return Err(Failure::new(exit::by_signal(libc::SIGINT), "nothing was recorded")),
        _ = terminated.recv() => return Err(Failure::new(exit::by_signal(libc::SIGTERM), "nothing was recorded")),
        store = target.connect() => store?,
    };
    let client = Client::new(store.backend.clone());
    let (began, began_at) = (Instant::now(), now());
    let end = args.time.map(|time| began + time);
    let mut recorder = Recorder::default();
    let watching = async {
        loop {
            match look(&store, &client, &args.name).await {
                Ok((queue, change)) => {
                    if recorder.has_seen_nothing() {
                        say(&format!("recording {}; Ctrl-C ends the recording", args.name));
                    }
                    recorder.see(millis(began.elapsed()), &queue);
                    change.await;
                }
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::SessionLost) => {
                    recorder.miss(millis(began.elapsed()));
                    say(&format!("{error}; retrying"));
                    sleep(PAUSE).await;
                }
                Err(error) => break Failure::from(error),
            }
        }
    };
    let over = async {
        match end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    let failure = tokio::select! {
        biased;
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
        () = over => None,
        failure = watching => Some(failure),
    };
    // A change may not have been reported yet.
    if let Ok(Ok((queue, _))) = timeout(LAST, look(&store, &client, &args.name)).await {
        recorder.see(millis(began.elapsed()), &queue);
    }
    let title = format!("{}, from {}", clean(args.name.as_str()), utc(began_at));
    let picture = recorder.end(title.clone(), millis(began.elapsed()));
    let text = timeline::page(&title, &[EXPLANATION], &[picture]);
    // This client holds nothing, so a failure has no effect.
    let _ = client.close().await;
    page.write(text.as_bytes())?;
    // What was seen until then is kept.
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Where the page goes.
enum Page {
    Output,
    /// Opened before the recording, which shows that it can be written.
    File {
        file: File,
        path: PathBuf,
        /// It did not exist before, and has no page yet.
        is_new: bool,
    },
}

impl Page {
    fn new(path: Option<PathBuf>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Page::Output) };
        let is_new = !path.exists();
        // A pipe without a reader must not keep the user here.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = File::options().write(true).create(true).truncate(false).custom_flags(flags).open(&path);
        let file = opened.and_then(|file| {
            fcntl_setfl(&file, OFlags::empty())?;
            Ok(file)
        });
        match file {
            Ok(file) => Ok(Page::File { file, path, is_new }),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    fn write(mut self, page: &[u8]) -> Result<(), Failure> {
        match &mut self {
            Page::Output => write(page),
            Page::File { file, path, is_new } => {
                // Fails for a device, which has no length.
                let _ = file.set_len(0);
                file.write_all(page).map_err(|error| failed(path, &error))?;
                *is_new = false;
                Ok(())
            }
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Page::File { path, is_new: true, .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn failed(file: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", file.display()))
}

fn millis(time: Duration) -> Ms {
    Ms::try_from(time.as_millis()).unwrap_or(Ms::MAX)
}

/// Makes a time line of snapshots of a queue.
#[derive(Debug, Default)]
struct Recorder {
    has_begun: bool,
    lanes: Vec<Lane>,
    /// The lane of each node that is in the queue.
    open: BTreeMap<String, usize>,
    /// Since when the store has not responded.
    missing: Option<Ms>,
    bands: Vec<Band>,
}

impl Recorder {
    fn has_seen_nothing(&self) -> bool {
        !self.has_begun
    }

    /// Records a snapshot.
    fn see(&mut self, at: Ms, queue: &[Participant]) {
        self.has_begun = true;
        self.found(at);
        let is_there = |node: &str| queue.iter().any(|one| one.name.as_str() == node);
        let gone: Vec<_> = self.open.keys().filter(|node| !is_there(node)).cloned().collect();
        for node in gone {
            if let Some(lane) = self.open.remove(&node) {
                self.close(lane, at);
            }
        }
        for participant in queue {
            let state = if participant.is_holder { State::Holds } else { State::Waits };
            let lane = self.lane(participant);
            let spans = &mut self.lanes[lane].spans;
            if spans.last().is_some_and(|span| span.to == OPEN && span.state == state) {
                continue;
            }
            self.close(lane, at);
            self.lanes[lane].spans.push(Span { state, from: at, to: OPEN, text: line(participant) });
        }
    }

    /// Records that the store does not respond.
    fn miss(&mut self, at: Ms) {
        self.missing.get_or_insert(at);
    }

    fn found(&mut self, at: Ms) {
        if let Some(from) = self.missing.take() {
            let text = "the store did not respond to this recording".to_owned();
            self.bands.push(Band { from, to: at, is_violation: false, text });
        }
    }

    /// Returns the lane of a node. A new node goes to the first lane of its client that is free.
    fn lane(&mut self, participant: &Participant) -> usize {
        let node = participant.name.as_str().to_owned();
        if let Some(lane) = self.open.get(&node) {
            return *lane;
        }
        let name = name(participant);
        let is_free = |(number, lane): &(usize, &Lane)| {
            lane.name == name && !self.open.values().any(|open| open == number)
        };
        let lane = self.lanes.iter().enumerate().find(is_free).map(|(number, _)| number);
        let lane = lane.unwrap_or_else(|| {
            self.lanes.push(Lane { name, spans: Vec::new() });
            self.lanes.len() - 1
        });
        self.open.insert(node, lane);
        lane
    }

    fn close(&mut self, lane: usize, at: Ms) {
        if let Some(span) = self.lanes[lane].spans.last_mut().filter(|span| span.to == OPEN) {
            span.to = at;
        }
    }

    fn end(mut self, title: String, end: Ms) -> Timeline {
        self.found(end);
        for lane in 0..self.lanes.len() {
            self.close(lane, end);
        }
        Timeline { title, end, lanes: self.lanes, bands: self.bands }
    }
}

/// The end of a span that has not ended.
const OPEN: Ms = Ms::MAX;

/// Returns what a client is called: its data, or its session.
fn name(participant: &Participant) -> String {
    let who = crate::participant::who(participant);
    let session = || participant.session.map(|session| session.to_string());
    who.or_else(session).unwrap_or_else(|| NodeName::as_str(&participant.name).to_owned())
}
