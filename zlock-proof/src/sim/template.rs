//! Rounds of the lock template, with closures that complete, panic, or are cancelled.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout};
use zlock::FencingToken;

use super::polls::cut;
use super::worker::{Round, Worker};
use super::world::World;

impl Worker {
    pub(crate) async fn run_template(&mut self, round: Round) {
        let (present, (path, lock)) = (round.present, round.locks[0]);
        let (wait, time, patience) = (self.patience(), self.random.millis(400), self.patience() * 4);
        let (client, world) = (present.number, self.world.clone());
        world.note(|| format!("c{client} template {wait:?} {lock:?} {}", world.paths[path]));
        let panics = self.random.once_in(10);
        let kind = lock.for_template().expect("a template has it");
        let template = present
            .client
            .lock_template("/")
            .and_then(|t| t.with_wait(wait, 2)?.with_kind(kind))
            .and_then(|t| if let Some(handoff) = lock.handoff { t.with_handoff(handoff) } else { Ok(t) })
            .expect("it can be built")
            .cancel_on_loss(self.random.once_in(4));
        let began = Instant::now();
        let execute = async move {
            let acquiring = world.acquiring(client, &[(path, lock)]);
            let name = world.paths[path].as_str().trim_start_matches('/');
            let closure = async |held: zlock::LockContext| {
                drop(acquiring);
                let _inside = Inside { world: world.clone(), token: held.fencing_token() };
                world.granted(client, path, lock.kind, held);
                sleep(time).await;
                if panics {
                    resume_unwind(Box::new("as planned"));
                }
            };
            template.execute(name, closure).await
        };
        let (cut_after, manner) = (self.random.within(1, 20), self.random.below(6));
        let task = tokio::spawn(async move {
            match manner {
                0 => cut(cut_after, execute).await,
                1 => timeout(patience, execute).await.ok(),
                _ => Some(execute.await),
            }
        });
        match task.await {
            Ok(Some(Err(e))) => {
                if !wait.is_zero() {
                    self.check_place(client, &e);
                }
                self.check_refusal(client, &[(path, lock)], began, &e);
            }
            Err(e) if e.is_panic() && !panics => self.world.fail("panic", || e.to_string()),
            _ => {}
        }
    }
}

/// A running closure.
struct Inside {
    world: Arc<World>,
    token: FencingToken,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.world.record_end(&[self.token]);
    }
}
