//! What holders do while they hold, and how they leave.

use std::panic::resume_unwind;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock::{ErrorKind, Release};

use super::lock::{Holding, Kind, Way};
use super::polls::cut;
use super::worker::{Round, Worker};

impl Worker {
    fn time(&mut self) -> Duration {
        // Long enough now and then that whoever sleeps through his turn is seen.
        let most = self.random.pick(&[1, 100, 100, 300, 300, 300, 300, 4000]);
        self.random.millis(most)
    }

    pub(crate) async fn stay(&mut self, round: &Round, holding: Holding) {
        let (world, time) = (self.world.clone(), self.time());
        let mut holding = holding;
        match self.random.below(14) {
            0 => {
                let _ = timeout(time * 10, holding.lost()).await;
            }
            1 if round.kind.enters_again() => self.enter_again(round, &holding).await,
            2 => match self.hand_on(round, holding).await {
                Some(other) => holding = other,
                None => return,
            },
            3 => {
                world.listens(holding.number(), true);
                let asked = timeout(time * 5, holding.revocation()).await;
                world.listens(holding.number(), false);
                if let Ok(Err(e)) = asked {
                    self.check_error(round.present.number, &e);
                }
            }
            4..8 if round.kind == Kind::Write => match self.downgrade(round, holding).await {
                Some(reader) => holding = reader,
                None => return,
            },
            _ => sleep(time).await,
        }
        self.leave(round, holding).await;
    }

    /// Inside the scope the same lock comes at once and is the same hold, or is lost.
    async fn enter_again(&mut self, round: &Round, holding: &Holding) {
        let (world, client, number) = (self.world.clone(), round.present.number, holding.number());
        let lock = &world.paths[round.path];
        let kind = match round.kind {
            Kind::Write => self.random.pick(&[Kind::Read, Kind::Write]),
            Kind::Read => self.random.pick(&[Kind::Read, Kind::Read, Kind::Write]),
            other => other,
        };
        let upgrades = (round.kind, kind) == (Kind::Read, Kind::Write);
        match holding.scope(kind.acquire(&round.present.client, lock, Way::Wait)).await {
            Ok(_) if upgrades => world.fail("reentry", || format!("#{number} was upgraded")),
            Ok(Some(inner)) => {
                if inner.number() != number {
                    world.fail("reentry", || format!("#{number} was entered again as #{}", inner.number()));
                }
                sleep(self.time()).await;
            }
            Ok(None) => world.fail("reentry", || format!("#{number} cannot be entered again")),
            Err(e) if upgrades && e.kind() == ErrorKind::UpgradeRefused => {}
            Err(e) => self.check_error(client, &e),
        }
    }

    /// The first entry leaves, and another one keeps the lock: that of a reader, where a writer has one.
    async fn hand_on(&mut self, round: &Round, holding: Holding) -> Option<Holding> {
        let (world, number) = (self.world.clone(), holding.number());
        let reads = round.kind == Kind::Write && self.random.once_in(2);
        let inner = if reads {
            let lock = &world.paths[round.path];
            holding.scope(Kind::Read.acquire(&round.present.client, lock, Way::Wait)).await
        } else {
            holding.reenter().map(Some)
        };
        let Ok(Some(inner)) = inner else {
            world.left(number);
            return None;
        };
        if reads {
            world.downgraded(number, inner.held());
        }
        if self.random.once_in(3) {
            drop(holding);
        } else {
            match holding.release().await {
                Ok(Release::StillHeld) => {}
                other => world.fail("reentry", || format!("the release of one of two said {other:?}")),
            }
        }
        sleep(self.time()).await;
        Some(inner)
    }

    async fn downgrade(&mut self, round: &Round, holding: Holding) -> Option<Holding> {
        let (world, number, time) = (self.world.clone(), holding.number(), self.time());
        sleep(time).await;
        world.downgrades(number);
        let cut_after = if self.random.once_in(4) { self.random.within(1, 6) } else { u64::MAX };
        match cut(cut_after, holding.downgrade()).await {
            Some(Ok(reader)) => {
                world.downgraded(number, reader.held());
                sleep(self.time()).await;
                return Some(reader);
            }
            Some(Err(e)) => self.check_error(round.present.number, &e.error),
            None => {}
        }
        world.left(number);
        None
    }

    async fn leave(&mut self, round: &Round, holding: Holding) {
        let (world, time, number) = (self.world.clone(), self.time(), holding.number());
        if world.plan.shutdown && Instant::now() >= world.end && self.random.once_in(4) {
            return world.keep(holding);
        }
        let manner = self.random.below(12);
        if manner == 6 {
            tokio::spawn(async move {
                sleep(time).await;
                world.left(number);
                drop(holding);
            });
            return;
        }
        world.left(number);
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
                Ok(Release::Released) => world.released(round.path, number),
                Ok(Release::StillHeld) => world.fail("release", || format!("#{number} was the last")),
                Ok(release) => world.note(|| format!("#{number} {release:?}")),
                Err(e) => self.check_error(round.present.number, &e),
            },
        }
    }
}
