//! What holders do while they hold a lock, and how they release it.

use std::panic::resume_unwind;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock::{ErrorKind, Release};

use super::polls::cut;
use super::usage::Locks;
use super::worker::{Round, Worker};
use crate::kind::Kind;
use crate::locks::{Holding, Wanted, Way};

impl Worker {
    fn time(&mut self) -> Duration {
        // Sometimes long enough to expose a waiter that misses its turn.
        let most = self.random.pick(&[1, 100, 100, 300, 300, 300, 300, 4000]);
        self.random.millis(most)
    }

    pub(crate) async fn stay(&mut self, round: &Round, holding: Holding) {
        let (world, time) = (self.world.clone(), self.time());
        let mut holding = holding;
        if world.plan.shares {
            self.share(round, &holding).await;
        }
        match self.random.below(14) {
            0 => {
                let _ = timeout(time * 10, holding.lost()).await;
            }
            1 => self.enter_again(round, &holding).await,
            2 => match self.hand_on(round, holding).await {
                Some(other) => holding = other,
                None => return,
            },
            3 => {
                world.listen(&holding.tokens(), true);
                let asked = timeout(time * 5, holding.revocation_requested()).await;
                world.listen(&holding.tokens(), false);
                if let Ok(Err(e)) = asked {
                    self.check_error(round.present.number, &e);
                }
            }
            4..8 if matches!(holding, Holding::Write(_)) => match self.downgrade(round, holding).await {
                Some(reader) => holding = reader,
                None => return,
            },
            _ => sleep(time).await,
        }
        self.leave(round, holding).await;
    }

    /// Checks that inside the scope, the same lock is granted at once with the same hold, or is lost.
    async fn enter_again(&mut self, round: &Round, holding: &Holding) {
        // It may be lost by then.
        if self.random.once_in(2) {
            sleep(self.time()).await;
        }
        let (world, client, tokens) = (self.world.clone(), round.present.number, holding.tokens());
        let at = self.random.place(round.locks.len());
        let ((path, held), token) = (round.locks[at], tokens[at]);
        if world.plan.paths[path].locks == Locks::All && self.random.once_in(2) {
            return self.try_another_kind(round, holding, path, held).await;
        }
        let again = match held.kind {
            Kind::Write => self.random.pick(&[Kind::Read, Kind::Write]).into(),
            Kind::Read => self.random.pick(&[Kind::Read, Kind::Read, Kind::Write]).into(),
            _ => held,
        };
        if !again.enters_again() {
            return;
        }
        let upgrades = (held.kind, again.kind) == (Kind::Read, Kind::Write);
        match holding.scope(again.acquire(&round.present.client, &world.paths[path], Way::Wait)).await {
            Ok(_) if upgrades => world.fail("reentry", || format!("#{token} was upgraded")),
            Ok(Some(inner)) => {
                let is_held = inner.is_held();
                if inner.tokens() != [token] || !is_held {
                    world.fail("reentry", || format!("#{token} as {:?}, held {is_held}", inner.tokens()));
                }
                sleep(self.time()).await;
            }
            Ok(None) => world.fail("reentry", || format!("#{token} cannot be entered again")),
            Err(e) if upgrades && e.kind() == ErrorKind::UpgradeRefused => {}
            Err(e) => self.check_error(client, &e),
        }
    }

    /// Checks that another kind of lock on the same path is not reentered but found held. If the first lock was lost, the path
    /// may be free, and the new lock is independent.
    async fn try_another_kind(&mut self, round: &Round, holding: &Holding, path: usize, held: Wanted) {
        let (world, client) = (self.world.clone(), round.present.number);
        let kind = match held.kind {
            Kind::Mutex => self.random.pick(&[Kind::Read, Kind::Write]),
            _ => Kind::Mutex,
        };
        let other = Wanted::from(kind);
        let _acquiring = world.acquiring(client, &[(path, other)]);
        let attempt = other.acquire(&round.present.client, &world.paths[path], Way::Try);
        match holding.scope(attempt).await {
            Ok(None) => {}
            Ok(Some(inner)) => {
                inner.helds().into_iter().for_each(|held| world.granted(client, path, kind, held));
                world.record_end(&inner.tokens());
            }
            Err(e) => self.check_error(client, &e),
        }
    }

    /// Releases the first entry, while another one keeps the lock: that of a reader, if a writer has one.
    async fn hand_on(&mut self, round: &Round, holding: Holding) -> Option<Holding> {
        let (world, tokens) = (self.world.clone(), holding.tokens());
        let reads = matches!(holding, Holding::Write(_)) && self.random.once_in(2);
        let inner = match round.only() {
            Some((path, _)) if reads => {
                let lock = &world.paths[path];
                holding.scope(Wanted::from(Kind::Read).acquire(&round.present.client, lock, Way::Wait)).await
            }
            _ => holding.reenter().map(Some),
        };
        let Ok(Some(inner)) = inner else {
            world.record_end(&tokens);
            return None;
        };
        if reads {
            inner.helds().into_iter().for_each(|held| world.downgraded(tokens[0], held));
        }
        if self.random.once_in(3) {
            drop(holding);
        } else {
            match holding.release().await {
                Ok(Release::StillHeld) => {}
                other => world.fail("reentry", || format!("releasing one of two guards returned {other:?}")),
            }
        }
        sleep(self.time()).await;
        Some(inner)
    }

    async fn downgrade(&mut self, round: &Round, holding: Holding) -> Option<Holding> {
        let (world, tokens, time) = (self.world.clone(), holding.tokens(), self.time());
        sleep(time).await;
        world.downgrades(tokens[0]);
        let cut_after = if self.random.once_in(4) { self.random.within(1, 6) } else { u64::MAX };
        match cut(cut_after, holding.downgrade()).await {
            Some(Ok(reader)) => {
                reader.helds().into_iter().for_each(|held| world.downgraded(tokens[0], held));
                sleep(self.time()).await;
                return Some(reader);
            }
            Some(Err(e)) => self.check_error(round.present.number, &e.error),
            None => {}
        }
        world.record_end(&tokens);
        None
    }

    async fn leave(&mut self, round: &Round, holding: Holding) {
        let (world, time, tokens) = (self.world.clone(), self.time(), holding.tokens());
        if world.plan.shutdown && Instant::now() >= world.end && self.random.once_in(4) {
            return world.keep(holding);
        }
        let manner = self.random.below(12);
        if manner == 6 {
            tokio::spawn(async move {
                sleep(time).await;
                world.record_end(&tokens);
                drop(holding);
            });
            return;
        }
        world.record_end(&tokens);
        match manner {
            0..4 => drop(holding),
            4 => drop(cut(self.random.within(1, 6), holding.release()).await),
            5 if self.random.once_in(4) => {
                let dropped = std::thread::spawn(move || drop(holding)).join();
                dropped.expect("a drop does not panic");
            }
            7 => drop(tokio::spawn(async move {
                let _holding = holding;
                resume_unwind(Box::new("as planned"));
            })),
            _ => match holding.release().await {
                Ok(Release::Released) => {
                    let client = round.present.number;
                    for ((path, lock), token) in round.locks.iter().zip(tokens) {
                        world.released(*path, client, lock.handoff.is_some(), token);
                    }
                }
                Ok(Release::StillHeld) => {
                    world.fail("release", || format!("other guards exist after the release of {tokens:?}"))
                }
                Ok(release) => world.note(|| format!("{tokens:?} {release:?}")),
                Err(e) => self.check_error(round.present.number, &e),
            },
        }
    }
}
