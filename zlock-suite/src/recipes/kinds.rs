//! `LockTemplate` for other locks than the mutex.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use zlock_core::{ErrorKind, Label};
use zlock_recipes::kind::{Kind, Permits, Read, Write};
use zlock_recipes::{LockTemplate, Release};

use crate::case::LONG;
use crate::{Call, Case, Inside, Process};

const NAME: &str = "prices";
const PERMITS: Permits = Permits { n: 2, max: 5 };

fn template(case: &Case<'_>, process: &Process, kind: impl Kind) -> LockTemplate {
    let template = process.client.lock_template(case.root()).unwrap().with_kind(kind).unwrap();
    // For the check after the case.
    assert_eq!(template.path(NAME).unwrap(), case.path(NAME));
    template
}

/// Returns the template with a single attempt for each execute.
fn impatient(template: LockTemplate) -> LockTemplate {
    template.with_wait(Duration::ZERO, 1).unwrap()
}

/// Readers run together, and keep writers out.
pub async fn readers_run_together(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (template(case, &a, Read), template(case, &b, Read));
    let ((one_in, one_seen), (two_in, two_seen)) = (oneshot::channel(), oneshot::channel());
    // Each ends when the other one is inside.
    let both = async {
        tokio::join!(
            one.execute(NAME, |_| async {
                one_in.send(()).unwrap();
                two_seen.await
            }),
            two.execute(NAME, |_| async {
                two_in.send(()).unwrap();
                one_seen.await.unwrap();
                let write = impatient(template(case, &b, Write));
                let error = Box::pin(write.execute(NAME, |_| async {})).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::UpgradeRefused, "in the scope of its own reader");
                let write = impatient(template(case, &b, Write));
                tokio::spawn(async move { write.execute(NAME, |_| async {}).await }).await.unwrap()
            }),
        )
    };
    let (one, two) = timeout(LONG, both).await.expect("both are inside at once");
    one.unwrap().unwrap();
    let error = two.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Busy, Some(case.path(NAME).as_str())));
}

/// A writer runs alone; readers and writers wait for it.
pub async fn writer_runs_alone(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let inside = Inside::default();
    let write = async |process: &Process| {
        let template = template(case, process, Write).with_wait(LONG, 1).unwrap();
        for _ in 0..3 {
            template.execute(NAME, |_| inside.visit()).await.unwrap();
        }
    };
    tokio::join!(write(&a), write(&b), write(&c));
    assert_eq!(inside.visits(), 9);
    let read = impatient(template(case, &b, Read));
    let busy = template(case, &a, Write)
        .execute(NAME, |held| async move {
            assert!(held.is_held());
            read.execute(NAME, |_| async {}).await
        })
        .await
        .unwrap();
    assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
}

/// Permits: as many closures at once as there are permits; the path is the semaphore's.
pub async fn permits_are_shared(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let [one, two, three] = [&a, &b, &c].map(|process| impatient(template(case, process, PERMITS)));
    let semaphore = c.client.semaphore(case.path(NAME), 5).unwrap();
    let innermost = one
        .execute(NAME, |_| async {
            two.execute(NAME, |_| async {
                let third = three.execute(NAME, |_| async {}).await;
                assert_eq!(third.unwrap_err().kind(), ErrorKind::Busy, "one permit is left");
                semaphore.try_acquire(1).await.unwrap().unwrap().release().await.unwrap()
            })
            .await
            .unwrap()
        })
        .await
        .unwrap();
    assert_eq!(innermost, Release::Released);
    let all = semaphore.acquire_timeout(5, LONG).await.unwrap();
    assert_eq!(all.release().await.unwrap(), Release::Released);
}

/// MX-07: a nested execute enters again: writing and reading inside writing, reading inside reading, even while a writer
/// waits. Writing inside reading is refused.
pub async fn nested_execute_reenters(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path(NAME);
    for (outer, inner) in
        [(Label::Write, Label::Write), (Label::Write, Label::Read), (Label::Read, Label::Read)]
    {
        let (outer, inner, a, path) = (template(case, &a, outer), template(case, &a, inner), &a, &path);
        let writer = b.client.read_write_lock(path).unwrap().write();
        let mut behind = None;
        let waiting = &mut behind;
        let nested = outer.execute(NAME, |outer| async move {
            let waiter = tokio::spawn(async move { writer.acquire_timeout(LONG).await.unwrap() });
            case.until_queued(path, 2).await;
            let creates = a.faults.count(Call::Create);
            let token = inner.execute(NAME, |inner| async move { inner.fencing_token() }).await.unwrap();
            assert_eq!((token, a.faults.count(Call::Create)), (outer.fencing_token(), creates));
            assert!(outer.is_held() && !waiter.is_finished());
            *waiting = Some(waiter);
        });
        nested.await.unwrap();
        let waiting = behind.expect("the closure ran");
        assert_eq!(waiting.await.unwrap().release().await.unwrap(), Release::Released);
    }
    let (read, write) = (template(case, &a, Read), template(case, &a, Write));
    let refused = read.execute(NAME, |_| async { write.execute(NAME, |_| async {}).await }).await.unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::UpgradeRefused);
}

/// The loss of the lock cancels a closure of any kind.
pub async fn loss_cancels_the_closure(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    for kind in [Label::Read, Label::Write, Label::Permits { weight: 2, max: 5, granted: true }] {
        let template = template(case, &a, kind);
        let path = case.path(NAME);
        let ended = template.execute(NAME, |_| async {
            for name in case.store.names(&path).await {
                case.store.remove(&path, &name).await;
            }
            std::future::pending::<()>().await;
        });
        assert_eq!(timeout(LONG, ended).await.unwrap().unwrap_err().kind(), ErrorKind::NodeDeleted);
    }
    let write = template(case, &b, Write);
    write.execute(NAME, |_| async {}).await.unwrap();
}

/// Invalid numbers of permits are refused before anything is sent.
pub async fn permits_that_cannot_be(case: &Case<'_>) {
    let a = case.process().await;
    for (n, max) in [(0, 3), (4, 3), (1, 0), (0, 0)] {
        let template = a.client.lock_template(case.root()).unwrap();
        let error = template.with_kind(Permits { n, max }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{n} of {max}");
    }
    let error = a.client.lock_template(case.root()).unwrap().with_kind(Label::Candidate).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(a.faults.total(), 0);
}
