//! Blocking jobs: threads that run a job once per tick.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use zlock::blocking::Client;
use zlock::job::{Interval, Outcome, RunState, Tick};
use zlock::mem::{MemOptions, MemServer};
use zlock::{Error, ErrorKind};

const PATH: &str = "/app/job";
const TICKS: usize = 5;

fn connect(server: &MemServer) -> Client {
    let server = server.clone();
    Client::new(async move { Ok(zlock::Client::new(server.connect())) }).unwrap()
}

fn tick() -> Tick {
    "2025-11-24T21:00:00Z".parse().unwrap()
}

/// Inside a run, the thread may wait for other calls, and enters the job's lock again.
#[test]
fn each_tick_runs_once_and_its_closure_may_block() {
    let server = MemServer::new();
    let (clients, runs) = ([connect(&server), connect(&server)], Mutex::new(BTreeMap::<Tick, usize>::new()));
    let every = |client: &Client| {
        let job = client.recurring_job(PATH).unwrap().attempts(2);
        job.every(Interval::new(Duration::from_millis(50)).unwrap(), |run| {
            let work = || {
                run.check()?;
                let again = client.mutex(PATH)?.acquire_timeout(Duration::from_secs(30))?.fencing_token();
                assert_eq!(again, run.fencing_token());
                client.wait(client.as_async().counter("/app/runs")?.add(1))?;
                let mut runs = runs.lock().unwrap();
                *runs.entry(run.tick()).or_default() += 1;
                if runs.len() == TICKS {
                    for client in &clients {
                        client.close()?;
                    }
                }
                Ok::<_, Error>(())
            };
            // With any other error, the loops would go on for ever.
            work().inspect_err(|error| {
                assert!(error.kind() == ErrorKind::Closed || error.is_lock_lost(), "{error}");
            })
        })
    };
    thread::scope(|scope| {
        let loops = [0, 1].map(|n| {
            scope.spawn({
                let (every, clients) = (&every, &clients);
                move || every(&clients[n]).unwrap_err()
            })
        });
        for ended in loops {
            assert_eq!(ended.join().unwrap().kind(), ErrorKind::Closed);
        }
    });
    let runs = runs.into_inner().unwrap();
    assert!(runs.len() == TICKS && runs.values().all(|runs| *runs == 1), "{runs:?}");
}

#[test]
fn a_loss_is_returned_after_the_closure_and_the_next_attempt_has_a_larger_token() {
    let (server, (send, link)) = (MemServer::new(), channel());
    let connecting = server.clone();
    let client = Client::new(async move {
        let backend = connecting.connect_with(MemOptions::default());
        send.send(backend.link()).unwrap();
        Ok(zlock::Client::new(backend))
    });
    let (client, link) = (client.unwrap(), link.recv().unwrap());
    let job = client.recurring_job(PATH).unwrap().attempts(2);
    let mut first = None;
    let lost = job.run(tick(), |run| {
        first = Some(run.fencing_token());
        server.expire(link.session().unwrap());
        while run.check().is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        Ok::<_, Infallible>(())
    });
    assert!(lost.unwrap_err().is_lock_lost());
    assert_eq!(job.last().unwrap().unwrap().state, RunState::Started);
    let again = job.run(tick(), |run| Ok::<_, Infallible>((run.attempt(), run.fencing_token()))).unwrap();
    let Outcome::Ran(Ok((2, token))) = again else { panic!("{again:?}") };
    assert!(Some(token) > first);
    assert!(matches!(job.begin(tick()).unwrap(), Err(Outcome::AlreadyRan(_))));
    let next = Tick::at(tick().time() + Duration::from_secs(60));
    job.begin(next).unwrap().unwrap().failed().unwrap();
    assert_eq!(job.last().unwrap().unwrap().state, RunState::Failed);
    client.close().unwrap();
}

/// A thread can check whether its run takes too long, and is not stopped. A run that ends too late is a failed attempt.
#[test]
fn a_run_that_takes_too_long_has_failed() {
    let client = connect(&MemServer::new());
    let job = client.recurring_job(PATH).unwrap().max_hold(Duration::from_millis(20)).unwrap();
    let error = job.run(tick(), |run| {
        thread::sleep(Duration::from_millis(40));
        assert_eq!(run.check().unwrap_err().kind(), ErrorKind::HeldTooLong);
        Ok::<_, Infallible>(())
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::HeldTooLong);
    assert_eq!(job.last().unwrap().unwrap().state, RunState::Failed);
    let later = job.clone().attempts(2).run(tick(), |_| Ok::<_, Infallible>(()));
    assert!(matches!(later, Ok(Outcome::Ran(Ok(())))), "{later:?}");
    client.close().unwrap();
}
