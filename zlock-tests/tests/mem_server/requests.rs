//! Lost requests, lost answers, delays and hooks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::common::{MS, T, create, limit, path, try_create};
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{
    CoordinationBackend, ErrorKind, Existence, Label, Needs, NodeIds, NodeName, RetryPolicy, Sequence,
    SessionState, Target, WatchEvent,
};
use zlock_mem::{Fate, Fault, MemOptions, MemServer, Operation};
use zlock_testkit::mem::watch;

#[tokio::test(start_paused = true)]
async fn a_lost_create_is_sent_again() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        create(&a).await;
        server.reset_requests();
        server.inject(Fault::lose_request(Operation::Create));
        let created = create(&a).await;
        assert_eq!(server.names(&path()).len(), 2);
        assert_eq!(created.queue.listed().unwrap().position(&created.node.id), Some(1));
        assert_eq!(server.requests(Operation::Create), 1, "a lost request has not arrived");
        assert_eq!(
            a.session_events().current().state,
            SessionState::Connected,
            "only one request was harmed"
        );
    })
    .await;
}

/// FR-01.
#[tokio::test(start_paused = true)]
async fn fr01_a_lost_answer_leaves_exactly_one_node_and_it_is_ours() {
    limit(async {
        for operation in [Operation::Create, Operation::List, Operation::CreateParents] {
            let server = MemServer::new();
            let a = server.connect();
            if operation != Operation::CreateParents {
                server.put(&path(), "foreign", b"");
            }
            server.inject(Fault::lose_answer(operation));
            let created = create(&a).await;
            assert_eq!(server.names(&path()).iter().filter(|name| *name != "foreign").count(), 1);
            assert!(server.names(&path()).contains(&created.node.name.to_string()));
            assert!(created.queue.listed().unwrap().find(&created.node.id).is_some());
            let creates = if operation == Operation::CreateParents { 2 } else { 1 };
            assert_eq!(server.requests(Operation::Create), creates, "{operation:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_node_of_a_lost_answer_keeps_its_fencing_token() {
    limit(async {
        let server = MemServer::new();
        let (a, b) = (server.connect(), server.connect());
        server.inject(Fault::lose_answer(Operation::Create).after(1));
        let first = create(&a).await;
        let second = create(&b).await;
        assert!(first.node.fencing_token < second.node.fencing_token);
        assert_eq!(first.node.session, Some(a.session_events().current().id));
    })
    .await;
}

/// T1, for the backend's part.
#[tokio::test(start_paused = true)]
async fn t1_a_create_that_fails_for_good_says_that_it_may_be_there() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        create(&a).await;
        server.inject(Fault::lose_answer(Operation::Create));
        server.inject(Fault::lose_request(Operation::List).times(u64::MAX));
        let token = NodeIds::seeded(1).next();
        let began = Instant::now();
        let error =
            a.create_ephemeral_sequential(&path(), Label::Lock, &token, b"", Needs::Queue).await.unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, true), "{error}");
        assert!(began.elapsed() <= 15_000 * MS, "{:?}", began.elapsed());
        assert_eq!(server.names(&path()).len(), 2);
        server.clear_faults();
        a.delete(&path(), &Target::Id(token), None).await.unwrap();
        assert_eq!(server.names(&path()).len(), 1);
    })
    .await;
}

/// Found by the simulation, seed 133: a waiter that was not polled while its time ran out left its node.
#[tokio::test(start_paused = true)]
async fn a_create_whose_time_ends_before_its_listing_comes_says_that_it_may_be_there() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect_with(MemOptions::default().with_operation_timeout(1000 * MS));
        create(&a).await;
        let link = a.link();
        server.on_request(move |_, arrival| {
            if arrival.operation == Operation::List {
                link.delay(Duration::ZERO, 2000 * MS);
            }
            Fate::Pass
        });
        let error = try_create(&a, Label::Lock).await.unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, true), "{error}");
        assert_eq!(server.names(&path()).len(), 2);
    })
    .await;
}

/// Found by the simulation, seed 100622: a create that continued in the next session left its node ID at another place, and a
/// client that watched the first place repeated its requests forever.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_made_again_at_another_place_is_gone() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let seen = try_create(&a, Label::Write).await.unwrap().node;
        server.remove(&path(), seen.name.as_str());
        let again = NodeName::of(&seen.id, Label::Write, Sequence::new(7));
        server.put(&path(), again.as_str(), b"");
        let mut requests = 0;
        server.on_request(move |_, _| {
            requests += 1;
            assert!(requests < 10, "it asks again and again");
            Fate::Pass
        });
        let existence = a.exists_with_watch(&path(), &seen).await.unwrap();
        assert!(matches!(existence, Existence::Deleted), "{existence:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_without_retries_gives_up_at_the_first_loss() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect_with(MemOptions::default().with_retry(RetryPolicy::never()));
        server.inject(Fault::lose_request(Operation::List));
        let error = a.children(&path(), None).await.unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, false), "{error}");
        a.children(&path(), None).await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn faults_count_and_pick_their_client() {
    limit(async {
        let server = MemServer::new();
        let options = || MemOptions::default().with_retry(RetryPolicy::never());
        let (a, b) = (server.connect_with(options()), server.connect_with(options()));
        server.inject(Fault::lose_answer(Operation::List).only(&a.link()).after(1).times(2));
        let mut results = Vec::new();
        for _ in 0..4 {
            b.children(&path(), None).await.unwrap();
            results.push(a.children(&path(), None).await.is_ok());
        }
        assert_eq!(results, [true, false, false, true]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_a_delete_or_relabel_is_made_up_for() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        for fault in [Fault::lose_answer, Fault::lose_request] {
            let written = try_create(&a, Label::Write).await.unwrap();
            server.inject(fault(Operation::Relabel));
            let read = a.relabel(&path(), &written.node, Label::Read).await.unwrap();
            assert_eq!(server.names(&path()), [read.name.as_str()]);
            server.inject(fault(Operation::Delete));
            a.delete(&path(), &Target::Node(read), None).await.unwrap();
            assert!(server.names(&path()).is_empty());
            assert!(!written.deletion.is_deleted());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_can_take_the_parent_away_at_the_worst_moment() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let left = Arc::new(Mutex::new(5));
        server.on_request(move |server, arrival| {
            let mut left = left.lock().unwrap();
            if arrival.operation == Operation::Create && *left > 0 {
                *left -= 1;
                server.remove_parent(arrival.parent.as_ref().unwrap());
            }
            Fate::Pass
        });
        let created = create(&a).await;
        assert_eq!(server.names(&path()), [created.node.name.as_str()]);
        assert_eq!(server.requests(Operation::Create), 6);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_always_vanishes_uses_up_the_time_not_the_processor() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        server.on_request(|server, arrival| {
            if arrival.operation == Operation::Create {
                server.remove_parent(arrival.parent.as_ref().unwrap());
            }
            Fate::Pass
        });
        let error = try_create(&a, Label::Lock).await.unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, false), "{error}");
        assert!(server.requests(Operation::Create) < 300);
    })
    .await;
}

/// On the real clock, since no time passes on a paused one while all answers are immediate.
#[tokio::test]
async fn a_label_that_changes_before_each_look_uses_up_the_time() {
    let server = MemServer::new();
    let a = server.connect_with(MemOptions::default().with_operation_timeout(100 * MS));
    let seen = try_create(&a, Label::Write).await.unwrap().node;
    let (written, read) = (seen.name.clone(), NodeName::of(&seen.id, Label::Read, seen.sequence));
    server.on_request(move |server, arrival| {
        let (from, to) =
            if arrival.operation == Operation::Watch { (&written, &read) } else { (&read, &written) };
        server.remove(&path(), from.as_str());
        server.put(&path(), to.as_str(), b"");
        Fate::Pass
    });
    let error = timeout(T, a.exists_with_watch(&path(), &seen)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_session_ends_on_the_way_is_made_in_the_next() {
    limit(async {
        for fate in [Fate::LoseAnswer, Fate::Pass] {
            let server = MemServer::new();
            let a = server.connect();
            create(&a).await;
            let mut first = true;
            server.on_request(move |server, arrival| {
                if arrival.operation == Operation::List && std::mem::take(&mut first) {
                    assert!(server.expire(arrival.session.unwrap()));
                    return fate;
                }
                Fate::Pass
            });
            let created = create(&a).await;
            assert_eq!(created.epoch, 2);
            assert_eq!(server.names(&path()), [created.node.name.as_str()], "none of the first session");
            assert_eq!(created.node.session, Some(a.session_events().current().id));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn delays_keep_the_order_and_add_up() {
    limit(async {
        let server = MemServer::new();
        let (a, b) = (server.connect(), server.connect());
        let created = create(&b).await;
        a.link().delay(100 * MS, 30 * MS);
        let began = Instant::now();
        let watch = watch(&a, &path(), &created.node).await;
        assert_eq!(began.elapsed(), 130 * MS);
        b.delete(&path(), &Target::Node(created.node), None).await.unwrap();
        assert_eq!(watch.await, WatchEvent::Deleted);
        assert_eq!(began.elapsed(), 160 * MS, "events are delayed as answers are");

        // A request that is sent after the delay was reduced does not overtake earlier ones.
        let slow = async {
            create(&a).await;
            Instant::now()
        };
        let fast = async {
            sleep(MS).await;
            a.link().delay(MS, MS);
            a.children(&path(), None).await.unwrap().len()
        };
        let (_, seen) = tokio::join!(slow, fast);
        assert_eq!(seen, 1);
    })
    .await;
}

/// A create is dropped after any poll, on a faulty link. The delete that follows finds whatever it left, and nothing appears
/// later.
#[tokio::test(start_paused = true)]
async fn an_abandoned_create_leaves_nothing_whatever_is_lost() {
    limit(async {
        let faults = [
            vec![],
            vec![Fault::lose_answer(Operation::Create)],
            vec![Fault::lose_request(Operation::Create)],
            vec![Fault::lose_answer(Operation::List)],
            vec![
                Fault::lose_answer(Operation::Create).times(3),
                Fault::lose_request(Operation::List).times(2),
            ],
        ];
        let mut cuts = 0;
        for fault in &faults {
            for delay in [0, 5] {
                for polls in 1.. {
                    let server = MemServer::new();
                    let a = server.connect();
                    a.link().delay(delay * MS, delay * MS);
                    fault.iter().cloned().for_each(|f| server.inject(f));
                    let token = NodeIds::seeded(polls).next();
                    let path = path();
                    let mut create = Box::pin(a.create_ephemeral_sequential(
                        &path,
                        Label::Lock,
                        &token,
                        b"",
                        Needs::Queue,
                    ));
                    let mut left = polls;
                    let ended = poll_fn(|cx| {
                        left -= 1;
                        match create.as_mut().poll(cx) {
                            Poll::Ready(_) => Poll::Ready(true),
                            Poll::Pending if left == 0 => Poll::Ready(false),
                            Poll::Pending => Poll::Pending,
                        }
                    })
                    .await;
                    drop(create);
                    a.delete(&path, &Target::Id(token), None).await.unwrap();
                    assert_eq!(server.names(&path), [""; 0], "{fault:?}, {polls} polls");
                    sleep(T).await;
                    assert_eq!(server.names(&path), [""; 0], "{fault:?}, a while after {polls} polls");
                    cuts += 1;
                    if ended {
                        break;
                    }
                }
            }
        }
        assert!(cuts > 60, "only {cuts}");
    })
    .await;
}

/// Any operation can be dropped at any poll, without leaving a watch.
#[tokio::test(start_paused = true)]
async fn an_abandoned_watch_leaves_none() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let created = create(&a).await;
        for delay in [0, 5] {
            a.link().delay(delay * MS, delay * MS);
            for on_queue in [false, true] {
                for polls in 1.. {
                    let path = path();
                    let look = async {
                        if on_queue {
                            drop(a.children_with_watch(&path).await.unwrap());
                        } else {
                            drop(a.exists_with_watch(&path, &created.node).await.unwrap());
                        }
                    };
                    let mut left = polls;
                    let ended = {
                        let mut look = pin!(look);
                        poll_fn(|cx| {
                            left -= 1;
                            match look.as_mut().poll(cx) {
                                Poll::Ready(()) => Poll::Ready(true),
                                Poll::Pending if left == 0 => Poll::Ready(false),
                                Poll::Pending => Poll::Pending,
                            }
                        })
                        .await
                    };
                    sleep(100 * MS).await;
                    assert_eq!(server.watches(), 0, "after {polls} polls");
                    if ended {
                        break;
                    }
                }
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_same_faults_give_the_same_run() {
    limit(async {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let server = MemServer::new();
            let log = Arc::new(Mutex::new(Vec::new()));
            let (began, seen) = (Instant::now(), log.clone());
            server.on_request(move |_, arrival| {
                seen.lock().unwrap().push((began.elapsed(), arrival.operation, arrival.session));
                Fate::Pass
            });
            let clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
            server.inject(Fault::lose_answer(Operation::Create).after(3).times(4));
            let mut creating = tokio::task::JoinSet::new();
            for client in clients {
                creating.spawn(async move {
                    create(&client).await;
                    sleep(2 * T).await;
                    client.close().await.unwrap();
                });
            }
            while creating.join_next().await.is_some() {}
            runs.push(log.lock().unwrap().clone());
        }
        assert!(runs[0].len() > 40, "{}", runs[0].len());
        assert_eq!(runs[0], runs[1]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_clears_the_faults_is_gone() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        create(&a).await;
        server.reset_requests();
        let mut calls = 0;
        server.on_request(move |server, arrival| {
            if arrival.operation != Operation::Create {
                return Fate::Pass;
            }
            calls += 1;
            assert_eq!(calls, 1, "it was removed");
            server.clear_faults();
            Fate::LoseRequest
        });
        create(&a).await;
        assert_eq!(server.requests(Operation::Create), 1, "the second one arrived");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_delay_stops_the_server() {
    limit(async {
        let server = MemServer::new();
        let (a, b) = (server.connect_with(MemOptions::default().with_operation_timeout(T)), server.connect());
        for delays in [(Duration::ZERO, Duration::MAX), (Duration::MAX, Duration::MAX)] {
            a.link().delay(delays.0, delays.1);
            assert_eq!(a.children(&path(), None).await.unwrap_err().kind(), ErrorKind::Unavailable);
            create(&b).await;
        }
        a.link().slow_down(Duration::MAX);
        a.children(&path(), None).await.unwrap_err();
        create(&b).await;
    })
    .await;
}
