//! Guards, scopes, clients.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use zlock_core::{CoordinationBackend, ErrorKind};
use zlock_recipes::{Client, InterProcessMutex, Release, Scope};

use crate::case::LONG;
use crate::{Call, Case, Log, Process, Side};

fn mutex(case: &Case<'_>, process: &Process) -> InterProcessMutex {
    case.lock::<InterProcessMutex>(process, "lock")
}

async fn free(case: &Case<'_>, process: &Process) {
    let guard = mutex(case, process).acquire_timeout(LONG).await.expect("the lock is free");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A guard that is dropped on a thread without a runtime releases the lock.
pub async fn dropped_outside_any_runtime(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = mutex(case, &a).acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    free(case, &b).await;
}

/// A guard that is dropped while its task unwinds releases the lock.
pub async fn dropped_while_unwinding(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = mutex(case, &a).acquire().await.unwrap();
    let task = tokio::spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    free(case, &b).await;
}

/// `reenter` returns another guard of the same hold; the last guard releases the lock, in any order, by a drop or a
/// release.
pub async fn reenter_by_hand(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let others = mutex(case, &b);
    let first = mutex(case, &a).acquire().await.unwrap();
    let calls = a.faults.total();
    let second = first.reenter().unwrap();
    let third = second.reenter().unwrap();
    assert_eq!(a.faults.total(), calls, "no request");
    drop(first);
    assert_eq!(second.release().await.unwrap(), Release::StillHeld);
    assert!(third.is_held() && others.try_acquire().await.unwrap().is_none());
    assert_eq!(third.release().await.unwrap(), Release::Released);
    free(case, &b).await;
}

/// Branches inside one held scope all enter again, at once: they are parts of one critical section.
pub async fn branches_of_one_scope_enter_together(case: &Case<'_>) {
    let a = case.process().await;
    let lock = mutex(case, &a);
    let guard = lock.acquire().await.unwrap();
    let branch = || async { lock.acquire().await.unwrap() };
    let (x, y) = guard.scope(async { tokio::join!(branch(), branch()) }).await;
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    assert_eq!(x.release().await.unwrap(), Release::StillHeld);
    assert_eq!(y.release().await.unwrap(), Release::Released);
}

/// A scope is passed to a spawned task only explicitly; once its lock is released, nothing can be entered again through
/// it.
pub async fn scope_by_hand(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let lock = mutex(case, &a);
    let guard = lock.acquire().await.unwrap();
    let scope = guard.scope(async { Scope::current() }).await;
    let inside = lock.clone();
    let carried = tokio::spawn(scope.clone().scope(async move { inside.acquire().await.unwrap() }));
    let carried = carried.await.unwrap();
    assert_eq!(carried.fencing_token(), guard.fencing_token());
    assert_eq!(carried.release().await.unwrap(), Release::StillHeld);
    let (token, _held) = (guard.fencing_token(), guard.context());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let others = mutex(case, &b).acquire().await.unwrap();
    let late = scope.clone().scope(async { lock.try_acquire().await.unwrap() }).await;
    assert!(late.is_none(), "somebody else holds");
    assert_eq!(others.release().await.unwrap(), Release::Released);
    let anew = scope.scope(async { lock.acquire().await.unwrap() }).await;
    assert!(anew.fencing_token() > token);
    assert_eq!(anew.release().await.unwrap(), Release::Released);
}

/// In a scope with two locks, both can be entered again; other locks wait as usual.
pub async fn scopes_nest(case: &Case<'_>) {
    let a = case.process().await;
    let locks = ["x", "y", "z"].map(|name| case.lock::<InterProcessMutex>(&a, name));
    let [x, y] = [locks[0].acquire().await.unwrap(), locks[1].acquire().await.unwrap()];
    let creates = a.faults.count(Call::Create);
    x.scope(y.scope(async {
        let guards = [locks[0].acquire().await.unwrap(), locks[1].acquire().await.unwrap()];
        assert_eq!(a.faults.count(Call::Create), creates);
        assert_eq!(guards[0].fencing_token(), x.fencing_token());
        assert_eq!(guards[1].fencing_token(), y.fencing_token());
        let other = locks[2].acquire().await.unwrap();
        assert_eq!(a.faults.count(Call::Create), creates + 1);
        assert_eq!(other.release().await.unwrap(), Release::Released);
        for guard in guards {
            assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
        }
    }))
    .await;
    assert_eq!(x.release().await.unwrap(), Release::Released);
    assert_eq!(y.release().await.unwrap(), Release::Released);
}

/// The same path in another session is another owner, even inside the scope.
pub async fn another_session_is_another_owner(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = mutex(case, &a).acquire().await.unwrap();
    let others = mutex(case, &b);
    assert!(guard.scope(async { others.try_acquire().await.unwrap() }).await.is_none());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Two clients on one backend are one session: they enter each other's scope.
pub async fn two_clients_of_one_session(case: &Case<'_>) {
    let connection = case.store.connect().await;
    let clients = [Client::new(connection.backend.clone()), Client::new(connection.backend.clone())];
    let path = case.path("lock");
    let [x, y] = [0, 1].map(|i| clients[i].mutex(&path).unwrap());
    let guard = x.acquire().await.unwrap();
    assert!(y.try_acquire().await.unwrap().is_none(), "not outside the scope");
    let again = guard.scope(async { y.acquire().await.unwrap() }).await;
    assert_eq!(again.fencing_token(), guard.fencing_token());
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    assert_eq!(again.release().await.unwrap(), Release::Released);
}

/// When the last handle of a client is dropped, its session and its nodes end; a guard is a handle.
pub async fn last_handle_ends_the_session(case: &Case<'_>) {
    let b = case.process().await;
    let path = case.path("lock");
    let connection = case.store.connect().await;
    let client = Client::new(connection.backend);
    let lock = client.mutex(&path).unwrap();
    let (guard, kept) = (lock.acquire().await.unwrap(), lock.acquire_timeout(Duration::ZERO).await);
    assert!(kept.unwrap_err().is_timeout());
    let mut events = client.session_events();
    drop((client, lock));
    assert!(guard.is_held() && mutex(case, &b).try_acquire().await.unwrap().is_none());
    drop(guard);
    let closed = timeout(LONG, events.ended(1)).await.expect("the session ends");
    assert!(!closed.is_live());
    free(case, &b).await;
}

/// A `LockContext` is no handle. One that outlives its lock, and a task that waits for the loss or for a request for
/// revocation, do not keep the session alive.
pub async fn kept_context_does_not_keep_the_session(case: &Case<'_>) {
    let b = case.process().await;
    let path = case.path("lock");
    let connection = case.store.connect().await;
    let client = Client::new(connection.backend);
    let guard = client.mutex(&path).unwrap().acquire().await.unwrap();
    let context = guard.context();
    let waits = [false, true].map(|for_revocation| {
        let context = context.clone();
        tokio::spawn(async move {
            let lost = if for_revocation {
                context.revocation_requested().await.unwrap_err()
            } else {
                context.lost().await
            };
            (lost.kind(), context)
        })
    });
    tokio::task::yield_now().await;
    let (token, node, events) = (guard.fencing_token(), guard.node(), client.session_events());
    drop(client);
    assert!(context.is_held() && guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    timeout(LONG, events.closed()).await.expect("the session ends");
    let mut contexts = vec![context];
    for waits in waits {
        let (kind, context) = timeout(LONG, waits).await.expect("resolves").unwrap();
        assert!(matches!(kind, ErrorKind::Released | ErrorKind::Closed), "{kind}");
        contexts.push(context);
    }
    for context in contexts {
        assert!(!context.is_held());
        let errors = [
            context.lost().await,
            context.check().unwrap_err(),
            context.revocation_requested().await.unwrap_err(),
        ];
        assert_eq!(errors.map(|error| error.kind()), [ErrorKind::Closed; 3]);
        assert_eq!((context.path(), context.fencing_token(), context.node()), (&path, token, node.clone()));
    }
    free(case, &b).await;
}

/// A release waits for the server for the response timeout and then returns `Pending`: the background completes it.
pub async fn release_is_pending_after_the_response_timeout(case: &Case<'_>) {
    let time = Duration::from_millis(700);
    let a = case.process_with(|builder| builder.with_response_timeout(time).unwrap()).await;
    let path = case.path("lock");
    let guard = mutex(case, &a).acquire().await.unwrap();
    let gate = a.faults.hold(Call::Delete, Side::Before);
    let began = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Release::Pending);
    case.took(began, time);
    drop(gate);
    case.until_free(&path).await;
    assert_eq!(a.session().epoch, 1);
}

/// A delete that fails for now is `Pending`, not an error.
pub async fn release_is_pending_when_no_server_answers(case: &Case<'_>) {
    let a = case.process().await;
    let guard = mutex(case, &a).acquire().await.unwrap();
    a.faults.fail(Call::Delete, Side::Before, 2, ErrorKind::Unavailable);
    assert_eq!(guard.release().await.unwrap(), Release::Pending);
    case.until_free(&case.path("lock")).await;
}

/// The holder learns that another client deleted its node; its release then reports that.
pub async fn removal_is_noticed(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let lock = mutex(case, &a);
    let guard = lock.acquire().await.unwrap();
    for name in case.store.names(&path).await {
        case.store.remove(&path, &name).await;
    }
    let error = timeout(case.store.session_timeout(), guard.lost()).await.expect("within a heartbeat");
    assert_eq!(error.kind(), ErrorKind::NodeDeleted);
    assert!(!guard.is_held() && !lock.is_acquired_in_this_process());
    assert_eq!(guard.reenter().unwrap_err().kind(), ErrorKind::NodeDeleted);
    let again = guard.scope(async { lock.acquire().await }).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::NodeDeleted);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
}

/// `lost()` of a guard resolves for every caller and stays resolved; it may be dropped and called again.
pub async fn lost_is_level_triggered(case: &Case<'_>) {
    let a = case.process().await;
    let guard = mutex(case, &a).acquire().await.unwrap();
    assert!(timeout(Duration::from_millis(50), guard.lost()).await.is_err(), "it is held");
    case.store.expire(&a.connection).await;
    let (one, two) = tokio::join!(guard.lost(), guard.lost());
    assert_eq!((one.kind(), two.kind()), (ErrorKind::SessionLost, ErrorKind::SessionLost));
    assert_eq!(guard.lost().await.kind(), ErrorKind::SessionLost);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
}

/// A task that waits for a lock that it holds itself causes a warning. There is none inside the scope, and none after its
/// release while another client holds the lock.
pub async fn waiting_for_oneself_is_warned_of(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (lock, others) = (mutex(case, &a), mutex(case, &b));
    let log = Log::of_this_thread();
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        drop(guard.scope(async { lock.acquire().await.unwrap() }).await);
        assert!(lock.acquire_timeout(Duration::from_millis(100)).await.unwrap_err().is_timeout());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let guard = others.acquire_timeout(LONG).await.unwrap();
        assert!(lock.acquire_timeout(Duration::from_millis(100)).await.unwrap_err().is_timeout());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    })
    .await
    .unwrap();
    assert_eq!(log.with("holds itself").len(), 1);
}

/// Node data defaults to host name and process ID; data set for the client or the mutex is stored byte for byte.
pub async fn node_data(case: &Case<'_>) {
    let plain = case.process().await;
    let set = case.process_with(|builder| builder.with_node_data("client").unwrap()).await;
    let pid = format!("pid {}", std::process::id());
    let told = async |lock: InterProcessMutex| {
        let guard = lock.acquire().await.unwrap();
        let told = lock.participants().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(told.len(), 1);
        told[0].data.clone()
    };
    let default = String::from_utf8(told(mutex(case, &plain)).await).unwrap();
    assert!(default.ends_with(&pid) && default.len() > pid.len() + 1, "{default}");
    assert_eq!(told(mutex(case, &set)).await, b"client");
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(told(mutex(case, &set).with_node_data(bytes.clone()).unwrap()).await, bytes);
    assert_eq!(told(mutex(case, &set).with_node_data("").unwrap()).await, b"");
}

/// A client accepts an `Arc` of a backend that others share; they close it.
pub async fn backend_shared_with_others(case: &Case<'_>) {
    let connection = case.store.connect().await;
    let backend: Arc<dyn CoordinationBackend> = connection.backend.clone();
    let path = case.path("lock");
    let client = Client::new(connection.backend.clone());
    let guard = client.mutex(&path).unwrap().acquire().await.unwrap();
    drop((client, guard));
    case.until_free(&path).await;
    assert!(backend.session_events().is_live(1), "the session lives on");
    backend.close().await.unwrap();
}
