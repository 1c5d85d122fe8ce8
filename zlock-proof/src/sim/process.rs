//! A "process" of a run: a client, which is replaced when it is closed.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use zlock::Client;

use super::random::Random;
use super::store::Link;
use super::world::World;

#[derive(Debug)]
pub(crate) struct Process {
    world: Arc<World>,
    number: u64,
    present: Mutex<Present>,
}

/// The current client of a process.
#[derive(Clone, Debug)]
pub(crate) struct Present {
    pub(crate) client: Client,
    /// The client's number in the world.
    pub(crate) number: usize,
    link: Link,
}

impl Process {
    pub(crate) fn new(world: &Arc<World>, number: u64) -> Arc<Self> {
        let present = Mutex::new(connect(world));
        Arc::new(Process { world: world.clone(), number, present })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn present(&self) -> Present {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn link(&self) -> (usize, Link) {
        let present = self.present();
        (present.number, present.link)
    }

    /// Closes the client, or drops it with its locks, and connects another one.
    pub(crate) fn replace(&self, random: &mut Random) {
        let next = connect(&self.world);
        let before =
            std::mem::replace(&mut *self.present.lock().unwrap_or_else(PoisonError::into_inner), next);
        if random.once_in(4) {
            self.world.note(|| format!("c{} is dropped", before.number));
            return;
        }
        self.world.note(|| format!("FAULT c{} is closed", before.number));
        self.world.lock().clients[before.number].closed = true;
        self.world.disturb(before.number, Instant::now());
        tokio::spawn(async move { before.client.close().await });
    }
}

impl Process {
    /// Cuts the client off for ever, as if its machine had died, and connects another one.
    pub(crate) fn kill(&self) {
        let next = connect(&self.world);
        let before =
            std::mem::replace(&mut *self.present.lock().unwrap_or_else(PoisonError::into_inner), next);
        self.world.note(|| format!("FAULT c{} is killed", before.number));
        self.world.set_healthy(before.number, false);
        self.world.lock().clients[before.number].killed = true;
        before.link.cut();
    }
}

fn connect(world: &World) -> Present {
    let plan = &world.plan;
    let (backend, link) = world.store.connect(plan);
    // A connect that was lost is tried again. To a ledger, it takes some requests, and nothing is granted in quiet time.
    let is_calm = match plan.ledger {
        Some(_) => !world.store.is_quiet(),
        None => backend.session_events().current().is_live(),
    };
    let number = world.add_client(link.clone(), is_calm);
    // So that others act between what a client reads and what it asks next.
    let mut random = Random::of(plan.seed, 1000 + number as u64);
    link.delay(random.millis(plan.latency + 1), random.millis(plan.latency + 1));
    let client = Client::builder(backend)
        .with_seed(plan.seed.wrapping_mul(1000) + number as u64)
        .with_response_timeout(plan.operation_timeout)
        .expect("more than nothing")
        .build();
    Present { client, number, link }
}
