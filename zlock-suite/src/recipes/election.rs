//! Leader election: what candidates, leaders and observers can rely on.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{ErrorKind, FencingToken, LockPath, Result, SessionState};
use zlock_recipes::{Election, Freshness, LeaderContext, LeaderView, LeaderWatch, Then};

use crate::case::{LONG, MOMENT};
use crate::{Call, Case, Process, Side};

const GRACE: Duration = Duration::from_secs(60);

fn election(case: &Case<'_>, process: &Process, value: &str) -> Election {
    process.client.election(case.path("election")).unwrap().with_value(value).unwrap()
}

/// Returns the value by which a leader is asked to step down. It is removed after the case.
fn step_down(case: &Case<'_>) -> LockPath {
    case.value("election-step-down")
}

/// Returns a success of the type that is expected of a closure.
fn done<T>(output: T) -> Result<T> {
    Ok(output)
}

/// Leads in a task until the client is shut down, and sends each term.
fn leads(election: &Election) -> (JoinHandle<Result<Option<()>>>, watch::Receiver<Option<LeaderContext>>) {
    let (terms, led) = watch::channel(None);
    let election = election.clone();
    let task = tokio::spawn(async move {
        election
            .lead(|leader| {
                terms.send_replace(Some(leader));
                pending()
            })
            .await
    });
    (task, led)
}

/// Waits until somebody leads with a term above this one.
async fn leads_above(
    case: &Case<'_>,
    led: &mut watch::Receiver<Option<LeaderContext>>,
    term: Option<FencingToken>,
) -> LeaderContext {
    let above = led.wait_for(|led| led.as_ref().is_some_and(|leader| Some(leader.term()) > term));
    let limit = 4 * case.store.session_timeout() + LONG;
    let led = timeout(limit, above).await.expect("nobody leads").expect("the candidate has ended");
    led.clone().unwrap()
}

/// Waits until a fresh view shows this value, or none, and checks that no earlier term is shown.
async fn shows(
    case: &Case<'_>,
    leaders: &mut LeaderWatch,
    value: Option<&str>,
    newest: &mut Option<FencingToken>,
) -> LeaderView {
    let shown = async {
        loop {
            let view = leaders.changed().await.unwrap();
            let term = view.leader.as_ref().map(|leader| leader.term);
            assert!(term.is_none() || term >= *newest, "{term:?} after {newest:?}");
            *newest = term.max(*newest);
            let is = view.leader.as_ref().map(|leader| &*leader.value) == value.map(str::as_bytes);
            if is && view.freshness == Freshness::Fresh {
                return view;
            }
        }
    };
    let limit = 4 * case.store.session_timeout() + LONG;
    timeout(limit, shown).await.unwrap_or_else(|_| panic!("{value:?} is not shown"))
}

/// Nobody ever leads: the view says so at once, and so does a look.
pub async fn nobody_leads_is_known_at_once(case: &Case<'_>) {
    let a = case.process().await;
    let election = election(case, &a, "a");
    assert_eq!(election.leader().await.unwrap(), None);
    assert_eq!(election.candidates().await.unwrap(), []);
    assert_eq!(election.request_step_down().await.unwrap(), None);
    let view = timeout(LONG, election.observe().changed()).await.expect("at once").unwrap();
    assert_eq!((view.leader, view.freshness), (None, Freshness::Fresh));
}

/// Others find the leader, its term and its value, in the order in which the candidates lead.
pub async fn leader_is_found_with_its_value(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let [first, second, looks] = [(&a, "a"), (&b, "b"), (&c, "c")].map(|(p, v)| election(case, p, v));
    let (mut leaders, mut newest) = (looks.observe(), None);
    let led = first.campaign().await.unwrap();
    let view = shows(case, &mut leaders, Some("a"), &mut newest).await;
    assert_eq!(view.leader.unwrap().term, led.term());
    assert_eq!(looks.leader().await.unwrap().unwrap().term, led.term());
    let waits = tokio::spawn(async move { second.campaign().await });
    case.until_queued(looks.path(), 2).await;
    let candidates = looks.candidates().await.unwrap();
    assert_eq!(candidates.iter().map(|c| &*c.data).collect::<Vec<_>>(), [b"a", b"b"]);
    led.proclaim("a, ready").await.unwrap();
    shows(case, &mut leaders, Some("a, ready"), &mut newest).await;
    assert_eq!((a.client.health().elections_led, b.client.health().elections_led), (1, 0));
    let term = led.term();
    led.resign().await.unwrap();
    let led = waits.await.unwrap().unwrap();
    assert!(led.term() > term);
    shows(case, &mut leaders, Some("b"), &mut newest).await;
    led.resign().await.unwrap();
    shows(case, &mut leaders, None, &mut newest).await;
}

/// A live view answers at once, also while no server answers. Over a change of leader that it did not see, it never goes back to an
/// earlier term.
pub async fn a_live_view_waits_for_nothing(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let [first, second, looks] = [(&a, "a"), (&b, "b"), (&c, "c")].map(|(p, v)| election(case, p, v));
    let led = first.campaign().await.unwrap();
    let live = looks.view();
    let mut newest = None;
    let mut shows = |term| {
        let shown = live.now().leader.map(|leader| leader.term);
        assert!(shown.is_none() || shown >= newest, "{shown:?} after {newest:?}");
        newest = shown.max(newest);
        shown == Some(term)
    };
    case.until("the first term is shown", async || shows(led.term())).await;

    case.links().cut(&c.connection).await;
    case.until("it is stale", async || live.now().freshness != Freshness::Fresh).await;
    let began = Instant::now();
    assert!(shows(led.term()));
    case.took(began, Duration::ZERO);
    let error = looks.leader_timeout(MOMENT).await.unwrap_err();
    case.took(began, MOMENT);
    assert!(error.is_timeout() || error.kind() == ErrorKind::Unavailable, "{error}");

    led.resign().await.unwrap();
    let led = second.campaign().await.unwrap();
    case.links().heal(&c.connection).await;
    case.until("the second term is shown", async || shows(led.term())).await;
    case.until("it is fresh", async || live.now().freshness == Freshness::Fresh).await;
    assert_eq!(live.now().leader.unwrap().value, b"b");
    led.resign().await.unwrap();
}

/// A mutex on the same path and a candidate exclude each other.
pub async fn other_kinds_of_lock_are_excluded(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (election, path) = (election(case, &a, "a"), case.path("election"));
    let led = election.campaign().await.unwrap();
    let others = b.client.read_write_lock(&path).unwrap();
    assert!(b.client.mutex(&path).unwrap().try_acquire().await.unwrap().is_none());
    assert!(others.read().try_acquire().await.unwrap().is_none());
    assert!(b.client.semaphore(&path, 2).unwrap().try_acquire(1).await.unwrap().is_none());
    led.resign().await.unwrap();
    let guard = others.read().acquire().await.unwrap();
    let error = election.campaign_timeout(MOMENT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    guard.release().await.unwrap();
}

/// The link is cut for longer than a session. No term lasts through it, even while the old node is listed, and the next one
/// has a node of its own.
pub async fn no_leader_without_a_session(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let election = election(case, &a, "a");
    let (task, mut led) = leads(&election);
    let first = leads_above(case, &mut led, None).await;
    let node = first.node();
    case.links().cut(&a.connection).await;
    let loss = timeout(3 * case.store.session_timeout() + LONG, first.lost()).await.expect("lost");
    assert_eq!(loss.kind(), ErrorKind::SessionLost, "{loss}");
    assert!(!first.is_held());
    assert!(first.proclaim("late").await.unwrap_err().is_lock_lost());
    let late = b.client.election(case.path("election")).unwrap().leader().await.unwrap();
    assert!(late.is_none_or(|late| late.value == b"a"));
    case.links().heal(&a.connection).await;
    let second = leads_above(case, &mut led, Some(first.term())).await;
    assert!(second.node() != node || second.term() > first.term());
    assert!(!first.is_held() && second.is_held());
    task.abort();
    let _ = task.await;
}

/// The link is cut for less than a session. The term goes on, and observers see nothing.
pub async fn short_outage_is_no_loss(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let election = election(case, &a, "a");
    let led = election.campaign().await.unwrap();
    let mut leaders = b.client.election(election.path()).unwrap().observe();
    let shown = leaders.changed().await.unwrap();
    case.links().cut(&a.connection).await;
    sleep(case.store.session_timeout() / 5).await;
    case.links().heal(&a.connection).await;
    case.until_session(&a, 1, SessionState::Connected).await;
    assert_eq!(a.session().epoch, 1, "the outage took longer than the session");
    led.check().unwrap();
    if let Ok(view) = timeout(MOMENT, leaders.changed()).await {
        panic!("{view:?} after {shown:?}");
    }
    led.proclaim("still here").await.unwrap();
    assert_eq!(leaders.changed().await.unwrap().leader.unwrap().value, b"still here");
    led.resign().await.unwrap();
}

/// An operator deletes the leader's node. The leader learns of it within a heartbeat, writes nothing more, and campaigns again.
pub async fn deleted_leader_campaigns_again(case: &Case<'_>) {
    let a = case.process().await;
    let election = election(case, &a, "a");
    let (task, mut led) = leads(&election);
    let first = leads_above(case, &mut led, None).await;
    case.store.remove(election.path(), first.node().as_str()).await;
    let error = first.proclaim("late").await.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
    let second = leads_above(case, &mut led, Some(first.term())).await;
    case.store.remove(election.path(), second.node().as_str()).await;
    let loss = timeout(case.store.session_timeout(), second.lost()).await.expect("within a heartbeat");
    assert_eq!(loss.kind(), ErrorKind::NodeDeleted, "{loss}");
    leads_above(case, &mut led, Some(second.term())).await;
    task.abort();
    let _ = task.await;
}

/// The middle one of three candidates dies. The third does not win, and the first one leads on.
pub async fn third_does_not_win_when_the_second_dies(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("election");
    let led = election(case, &a, "a").campaign().await.unwrap();
    let middle = election(case, &b, "b");
    let second = tokio::spawn(async move { middle.campaign().await.map(|_| ()) });
    case.until_queued(&path, 2).await;
    let last = election(case, &c, "c");
    let third = tokio::spawn(async move { last.campaign().await });
    case.until_queued(&path, 3).await;
    case.store.expire(&b.connection).await;
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionLost, "{error}");
    case.until_queued(&path, 2).await;
    sleep(MOMENT).await;
    assert!(!third.is_finished() && led.is_held());
    led.resign().await.unwrap();
    // The second one has not come back.
    let led = third.await.unwrap().unwrap();
    assert_eq!(election(case, &a, "a").leader().await.unwrap().unwrap().value, b"c");
    led.resign().await.unwrap();
}

/// A closure that needs its time to stop keeps the others waiting until it has ended.
pub async fn nobody_leads_before_the_work_has_ended(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (slow, next) = (election(case, &a, "a"), election(case, &b, "b"));
    let (started, mut is_started) = watch::channel(false);
    let ended = Arc::new(Mutex::new(None));
    let noted = ended.clone();
    let first = tokio::spawn(async move {
        slow.lead(|leader| {
            let (started, noted) = (started.clone(), noted.clone());
            async move {
                started.send_replace(true);
                leader.step_down_requested().await?;
                sleep(Duration::from_secs(5)).await;
                assert!(leader.is_held());
                *noted.lock().unwrap() = Some(Instant::now());
                done(())
            }
        })
        .await
    });
    is_started.wait_for(|is| *is).await.unwrap();
    let second = tokio::spawn(async move { next.campaign().await.map(|led| (Instant::now(), led)) });
    case.until_queued(&case.path("election"), 2).await;
    let shutdown = a.client.shutdown(GRACE).await.unwrap();
    assert_eq!((shutdown.still_held, first.await.unwrap().unwrap()), (0, None));
    let (won, led) = second.await.unwrap().unwrap();
    assert!(won >= ended.lock().unwrap().expect("the work has ended"));
    led.resign().await.unwrap();
    let _ = step_down(case);
}

/// A leader loses its session a hundred times in a row, and leads again each time. Terms only grow.
pub async fn hundred_losses_in_a_row(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let election = election(case, &a, "a");
    let (task, mut led) = leads(&election);
    let (mut leaders, mut newest) = (b.client.election(election.path()).unwrap().observe(), None);
    let mut term = None;
    for _ in 0..case.many(100, 5) {
        let leader = leads_above(case, &mut led, term).await;
        term = Some(leader.term());
        shows(case, &mut leaders, Some("a"), &mut newest).await;
        case.store.expire(&a.connection).await;
        let loss = timeout(3 * case.store.session_timeout() + LONG, leader.lost()).await.expect("lost");
        assert!(loss.is_lock_lost(), "{loss}");
    }
    leads_above(case, &mut led, term).await;
    task.abort();
    let _ = task.await;
}

/// A leads, B leads, and A leads again while an observer is cut off. The term shows that it is another one.
pub async fn observer_that_missed_a_term_sees_another_one(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let [first, second, looks] = [(&a, "a"), (&b, "b"), (&c, "c")].map(|(p, v)| election(case, p, v));
    let (mut leaders, mut newest) = (looks.observe(), None);
    let led = first.campaign().await.unwrap();
    let before = shows(case, &mut leaders, Some("a"), &mut newest).await.leader.unwrap();
    case.links().cut(&c.connection).await;
    case.until_session(&c, 1, SessionState::Suspended).await;
    let stale = leaders.changed().await.unwrap();
    assert!(matches!(stale.freshness, Freshness::StaleSince(_)), "{stale:?}");
    assert_eq!(stale.leader.as_ref(), Some(&before));
    led.resign().await.unwrap();
    second.campaign().await.unwrap().resign().await.unwrap();
    let led = first.campaign().await.unwrap();
    case.links().heal(&c.connection).await;
    let after = shows(case, &mut leaders, Some("a"), &mut newest).await.leader.unwrap();
    assert_eq!((after.term, &after.value), (led.term(), &before.value));
    assert!(after.term > before.term);
    led.resign().await.unwrap();
}

/// The leader's node is deleted between the listing and the read of its value: the next one is returned.
pub async fn head_that_goes_between_list_and_read(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let [first, second, looks] = [(&a, "a"), (&b, "b"), (&c, "c")].map(|(p, v)| election(case, p, v));
    let led = first.campaign().await.unwrap();
    let waits = tokio::spawn(async move { second.campaign().await });
    case.until_queued(looks.path(), 2).await;
    let gate = c.faults.hold(Call::Data, Side::Before);
    let look = tokio::spawn(async move { looks.leader().await });
    gate.reached().await;
    led.resign().await.unwrap();
    let led = waits.await.unwrap().unwrap();
    gate.open();
    assert_eq!(look.await.unwrap().unwrap().unwrap().value, b"b");
    led.resign().await.unwrap();
}

/// A candidate that joins behind the leader costs observers nothing, however many there are.
pub async fn new_candidate_wakes_no_observer(case: &Case<'_>) {
    let ([a, b, c], observers) = (case.processes().await, case.many(200, 50));
    let led = election(case, &a, "a").campaign().await.unwrap();
    let looks = election(case, &c, "c");
    let mut views = Vec::new();
    for _ in 0..observers {
        let mut leaders = looks.observe();
        assert_eq!(leaders.changed().await.unwrap().leader.unwrap().value, b"a");
        views.push(leaders);
    }
    let (woken, reads) = (Arc::new(AtomicUsize::new(0)), || c.faults.count(Call::HeadWithWatch));
    let before = reads();
    let tasks: Vec<_> = views
        .into_iter()
        .map(|mut leaders| {
            let woken = woken.clone();
            tokio::spawn(async move {
                let view = leaders.changed().await.unwrap();
                woken.fetch_add(1, Ordering::SeqCst);
                view
            })
        })
        .collect();
    let joins = election(case, &b, "b");
    let waits = tokio::spawn(async move { joins.campaign().await });
    case.until_queued(looks.path(), 2).await;
    sleep(MOMENT).await;
    assert_eq!((woken.load(Ordering::SeqCst), reads()), (0, before));
    led.proclaim("changed").await.unwrap();
    for task in tasks {
        let view = timeout(LONG, task).await.expect("every observer is woken").unwrap();
        assert_eq!(view.leader.unwrap().value, b"changed");
    }
    assert_eq!(reads(), before + observers);
    led.resign().await.unwrap();
    waits.await.unwrap().unwrap().resign().await.unwrap();
}

/// The answer to a proclamation is lost, and a second one follows. The second one stays.
pub async fn later_proclamation_stays(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let election = election(case, &a, "a");
    let looks = b.client.election(election.path()).unwrap();
    let led = election.campaign().await.unwrap();
    let is = async |value: &[u8]| looks.leader().await.unwrap().unwrap().value == value;
    // Dropped after it took effect, so that its answer is lost for the leader.
    case.links().mute(&a.connection).await;
    {
        let first = led.proclaim("first");
        tokio::pin!(first);
        let written = case.until("the first one takes effect", async || is(b"first").await);
        tokio::select! {
            biased;
            early = &mut first => panic!("answered: {early:?}"),
            () = written => {}
        }
    }
    case.links().heal(&a.connection).await;
    led.proclaim("second").await.unwrap();
    assert!(is(b"second").await);
    // Answered late, after the link was repaired.
    case.links().mute(&a.connection).await;
    let heal = async {
        case.until("the third one takes effect", async || is(b"third").await).await;
        case.links().heal(&a.connection).await;
    };
    let (third, ()) = tokio::join!(led.proclaim("third"), heal);
    third.unwrap();
    led.proclaim("fourth").await.unwrap();
    assert!(is(b"fourth").await);
    // By somebody who writes the leader's data by hand.
    let node = b.connection.children(election.path(), None).await.unwrap()[0].clone();
    b.connection.write_data(election.path(), &node, None, b"by hand").await.unwrap();
    led.proclaim("fifth").await.unwrap();
    assert!(is(b"fifth").await);
    led.resign().await.unwrap();
}

/// A request to step down reaches the leader of its term and no later one, and observers see nothing of it.
pub async fn step_down_reaches_the_term_that_it_names(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (first, looks, _value) = (election(case, &a, "a"), election(case, &b, "b"), step_down(case));
    let led = first.campaign().await.unwrap();
    let mut leaders = looks.observe();
    assert_eq!(leaders.changed().await.unwrap().leader.unwrap().value, b"a");
    assert!(timeout(MOMENT, led.step_down_requested()).await.is_err(), "nobody has asked");
    let (asked, ()) = tokio::join!(
        async { timeout(LONG, led.step_down_requested()).await.expect("asked").unwrap() },
        async {
            sleep(MOMENT).await;
            assert_eq!(looks.request_step_down().await.unwrap(), Some(led.term()));
        }
    );
    let () = asked;
    if let Ok(view) = timeout(MOMENT, leaders.changed()).await {
        panic!("seen by an observer: {view:?}");
    }
    led.resign().await.unwrap();
    let led = first.campaign().await.unwrap();
    assert!(timeout(MOMENT, led.step_down_requested()).await.is_err(), "a later leader was asked");
    led.resign().await.unwrap();
}

/// The leader is asked whatever stands in the value: a number that is no term yet, or no number.
pub async fn step_down_replaces_what_names_another_term(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (first, looks) = (election(case, &a, "a"), election(case, &b, "b"));
    let stands = b.client.shared_value(step_down(case)).unwrap();
    let led = first.campaign().await.unwrap();
    for other in ["18446744073709551615", "1", "nobody"] {
        stands.update(|_| Some(other.into())).await.unwrap();
        assert_eq!(looks.request_step_down().await.unwrap(), Some(led.term()));
        timeout(LONG, led.step_down_requested()).await.expect("asked").unwrap();
    }
    led.resign().await.unwrap();
}

/// A request to release a mutex leaves the leader's value alone.
pub async fn revocation_leaves_the_value_alone(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let election = election(case, &a, "a");
    let led = election.campaign().await.unwrap();
    assert_eq!(b.client.mutex(election.path()).unwrap().request_revocation().await.unwrap(), 0);
    assert_eq!(election.leader().await.unwrap().unwrap().value, b"a");
    assert!(led.is_held());
    led.resign().await.unwrap();
}

/// What `lead` does when its closure ends is a choice.
pub async fn end_of_the_work_is_a_choice(case: &Case<'_>) {
    let a = case.process().await;
    let election = election(case, &a, "a");
    let turns = AtomicUsize::new(0);
    let turn = || turns.fetch_add(1, Ordering::SeqCst);
    let stops = election.clone().after_work(Then::Return);
    assert_eq!(stops.lead(async |_| done(turn())).await.unwrap(), Some(0));
    // By default, it leads again after success and after failure.
    let failure = || zlock_core::Error::new(ErrorKind::Unexpected, "work");
    let mixed = stops.lead(async |_| match turn() {
        1 => Err(failure()),
        n => Ok(n),
    });
    assert_eq!(mixed.await.unwrap(), Some(2));
    let fails = election.clone().after_failure(Then::Return);
    let mixed = fails.lead(async |_| match turn() {
        3 => Ok(()),
        _ => Err(failure()),
    });
    assert_eq!(mixed.await.unwrap_err().kind(), ErrorKind::Unexpected);
    assert_eq!(turns.load(Ordering::SeqCst), 5);
    case.until_free(election.path()).await;
}

/// A closure that panics resigns first. Then the panic goes on, or the candidate campaigns again.
pub async fn panic_of_the_work_resigns(case: &Case<'_>) {
    let a = case.process().await;
    let election = election(case, &a, "a").after_work(Then::Return);
    let panics = election.clone();
    let task =
        tokio::spawn(async move { panics.lead(async |_| -> Result<()> { panic!("on purpose") }).await });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(election.leader().await.unwrap(), None);
    let turns = AtomicUsize::new(0);
    let again = election.clone().after_panic(Then::CampaignAgain);
    let led = again.lead(async |_| {
        assert!(turns.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
        done(())
    });
    assert_eq!(led.await.unwrap(), Some(()));
    assert_eq!(turns.load(Ordering::SeqCst), 2);
    case.until_free(election.path()).await;
}

/// A value that is too long, or would be taken for something else, is refused before anything is sent.
pub async fn bad_values_are_refused(case: &Case<'_>) {
    let a = case.process().await;
    let election = election(case, &a, "a");
    let led = election.campaign().await.unwrap();
    for bad in [vec![7; zlock_core::MAX_DATA + 1], b"__REVOKE__".to_vec()] {
        let error = election.clone().with_value(bad.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let error = led.proclaim(bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert_eq!(election.leader().await.unwrap().unwrap().value, b"a");
    led.resign().await.unwrap();
}
