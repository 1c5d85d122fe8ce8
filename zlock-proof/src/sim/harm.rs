//! Faults that last for a while.

use std::time::Duration;

use tokio::time::Instant;
use zlock_ledger::mem::{Protection, ScopeLock};

use super::process::Process;
use super::random::Random;
use super::shared::count;
use super::store::Link;
use super::world::World;

/// A fault, and when it ends.
#[derive(Debug)]
pub(crate) struct Harm {
    pub(crate) until: Instant,
    what: What,
}

#[derive(Debug)]
enum What {
    Link(usize, Link),
    Slow(usize, Link),
    Fence(OpenFence),
    Scope(ScopeLock),
}

/// A user's open transaction that protects a node.
#[derive(Debug)]
pub(crate) struct OpenFence {
    number: u64,
    protection: Protection,
}

/// Injects a fault into a link. Returns it, if it does not pass by itself.
pub(crate) fn harm(world: &World, random: &mut Random, process: &Process) -> Option<Harm> {
    let (client, link) = process.link();
    let healthy = world.lock().clients[client].healthy;
    let kind = random.below(5);
    let what = ["reset", "cut", "mute", "suspend", "delay"][kind as usize];
    if !healthy {
        return None;
    }
    world.note(|| format!("FAULT {what} c{client}"));
    world.disturb(client, Instant::now());
    match kind {
        0 => link.reset(),
        1 => link.cut(),
        2 => link.mute(),
        3 => link.suspend(),
        _ => link.delay(random.millis(world.plan.delay + 1), random.millis(world.plan.delay + 1)),
    }
    if !(1..=3).contains(&kind) {
        return None;
    }
    world.set_healthy(client, false);
    // Both shorter and longer than the session timeout.
    let session = world.plan.session.as_millis() as u64;
    let length = random.pick(&[session / 10, session, session * 3]);
    Some(Harm { until: Instant::now() + random.millis(length), what: What::Link(client, link) })
}

/// Makes the store slow for one client. Others wait, because a request has its locks meanwhile.
pub(crate) fn slow_down(world: &World, random: &mut Random, process: &Process, most: u64) -> Harm {
    let ((client, link), time) = (process.link(), random.millis(most));
    let until = until(random, &[1000, world.plan.session.as_millis() as u64]);
    world.note(|| format!("FAULT each request of c{client} takes {time:?}"));
    world.disturb_all(until + time);
    link.slow_down(time);
    Harm { until, what: What::Slow(client, link) }
}

/// Opens a transaction of a user that protects one of the nodes, for a while.
pub(crate) fn open_fence(world: &World, random: &mut Random) -> Option<Harm> {
    let until = until(random, &[200, 2000, 2 * world.plan.session.as_millis() as u64]);
    let fence = fence(world, random)?;
    world.disturb_all(until);
    Some(Harm { until, what: What::Fence(fence) })
}

/// Protects one of the nodes.
pub(crate) fn fence(world: &World, random: &mut Random) -> Option<OpenFence> {
    let path = random.place(world.paths.len());
    let places = world.places(&world.paths[path]);
    let place = places.get(random.place(places.len()))?;
    let protection = world.store.protect(&world.paths[path], &place.name)?;
    let number = world.fence(path, place);
    Some(OpenFence { number, protection })
}

/// Locks a scope, for a while.
pub(crate) fn lock_scope(world: &World, random: &mut Random) -> Option<Harm> {
    let until = until(random, &[100, 1000, 4000]);
    let path = random.place(world.paths.len() + 1);
    let lock = match world.paths.get(path) {
        Some(path) => world.store.lock_queue(path)?,
        None => world.store.lock_value(&count())?,
    };
    world.note(|| format!("FAULT another program locks scope {path}"));
    world.disturb_all(until);
    Some(Harm { until, what: What::Scope(lock) })
}

fn until(random: &mut Random, lengths: &[u64]) -> Instant {
    let length = random.pick(lengths);
    Instant::now() + random.millis(length) + Duration::from_millis(1)
}

/// Ends faults.
pub(crate) fn heal(world: &World, harms: Vec<Harm>) {
    for harm in harms {
        match harm.what {
            What::Link(client, link) => {
                if world.lock().clients[client].killed {
                    continue;
                }
                world.note(|| format!("c{client} is healed"));
                link.heal();
                world.set_healthy(client, true);
            }
            What::Slow(client, link) => {
                world.note(|| format!("c{client} is no longer slow"));
                link.slow_down(Duration::ZERO);
            }
            What::Fence(fence) => world.unfence(fence),
            What::Scope(lock) => {
                world.note(|| "another program frees a scope".into());
                drop(lock);
            }
        }
    }
}

impl World {
    /// Ends a user's transaction.
    pub(crate) fn unfence(&self, fence: OpenFence) {
        self.note(|| format!("transaction {} ends", fence.number));
        self.lock().past.fences.remove(&fence.number);
        drop(fence.protection);
    }
}
