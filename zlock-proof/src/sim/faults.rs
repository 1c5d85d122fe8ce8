//! The faults of links, store and nodes, derived from the seed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use zlock::LockPath;
use zlock::mem::Fate;

use super::harm::{Harm, fence, harm, heal, lock_scope, open_fence, slow_down};
use super::process::Process;
use super::random::Random;
use super::store::{Link, Request};
use super::world::World;

/// Decides the fate of each request, and the events right before it takes effect.
pub(crate) fn hook(world: &Arc<World>) -> impl FnMut(&Request) -> Fate + Send + 'static {
    // Weak, because the store owns the hook, and the world owns the store.
    let (world, mut random) = (Arc::downgrade(world), Random::of(world.plan.seed, 1));
    move |request| {
        let Some(world) = world.upgrade() else { return Fate::Pass };
        world.count_request();
        world.check();
        let client = world.sender_of(request);
        if random.once_in(world.plan.race) && Instant::now() < world.end {
            world.note_firsts();
            race(&world, &mut random, request);
        }
        let paths = request.paths();
        paths.iter().for_each(|path| world.note_first(path));
        world.look_at_job();
        let fate = if Instant::now() < world.end && random.once_in(world.plan.lose) {
            random.pick(&[Fate::LoseRequest, Fate::LoseAnswer])
        } else {
            Fate::Pass
        };
        let who = client.map_or("c?".into(), |client| format!("c{client}"));
        world.note(|| {
            let paths: Vec<_> = paths.iter().map(LockPath::as_str).collect();
            let (session, operation) = (request.session(), request.operation());
            format!("{who} {session:?} > {operation:?} {} {fate:?}", paths.join(" "))
        });
        if fate != Fate::Pass {
            world.lock().counts.faults += 1;
            match client {
                Some(client) => world.disturb(client, Instant::now()),
                None => world.disturb_all(Instant::now()),
            }
        }
        fate
    }
}

/// Triggers an event right before a request.
fn race(world: &World, random: &mut Random, before: &Request) {
    let kinds = if world.plan.ledger.is_some() { 6 } else { 4 };
    match random.below(kinds) {
        0 if world.plan.operator => take_node(world, random),
        1 if world.plan.operator => end_session(world, random),
        2 if !before.needs_parent() => reap(world),
        3 if world.plan.harm_every > 0 => {
            let clients: Vec<Link> = world.lock().clients.iter().map(|c| c.link.clone()).collect();
            let client = random.place(clients.len());
            world.note(|| format!("FAULT reset c{client}"));
            world.disturb(client, Instant::now());
            clients[client].reset();
        }
        4 if world.plan.harm_every > 0 && random.once_in(3) && !world.was_lossy_lately() => {
            world.note(|| "FAULT the store restarts at once".into());
            world.disturb_all(Instant::now());
            world.start(random, false);
        }
        5 => {
            if let Some(fence) = fence(world, random) {
                world.unfence(fence);
            }
        }
        _ => reap(world),
    }
}

fn reap(world: &World) {
    world.note(|| "FAULT empty parents go".into());
    world.store.reap();
}

/// An operator deletes a node.
fn take_node(world: &World, random: &mut Random) {
    let path = &world.paths[random.place(world.paths.len())];
    let places = world.places(path);
    if places.is_empty() {
        return;
    }
    let place = &places[random.place(places.len())];
    world.note(|| format!("FAULT an operator deletes #{}", place.number));
    world.lock().counts.faults += 1;
    let before = world.take(&[place.number]);
    if !world.store.remove_node(path, &place.name) {
        world.lock().holds.taken = before;
    }
}

/// An operator ends a session.
fn end_session(world: &World, random: &mut Random) {
    let sessions = world.store.sessions();
    if sessions.is_empty() {
        return;
    }
    let session = sessions[random.place(sessions.len())];
    let of_session: Vec<_> = world
        .paths
        .iter()
        .flat_map(|path| world.places(path))
        .filter(|place| place.session == Some(session))
        .map(|place| place.number)
        .collect();
    world.note(|| format!("FAULT an operator ends {session} with {of_session:?}"));
    world.lock().counts.faults += 1;
    let before = world.take(&of_session);
    if let Some(client) = world.client_of(session) {
        world.disturb(client, Instant::now());
    }
    if !world.store.expire(session) {
        world.lock().holds.taken = before;
    }
}

/// Injects faults into links and store until the end, and heals them.
pub(crate) async fn nemesis(world: Arc<World>, processes: Vec<Arc<Process>>) {
    let mut random = Random::of(world.plan.seed, 2);
    let mut harmed: Vec<Harm> = Vec::new();
    let every = world.plan.harm_every;
    let mut next = Instant::now();
    while every > 0 && Instant::now() < world.end {
        next += random.millis(every) + Duration::from_millis(1);
        while let Some(at) =
            harmed.iter().map(|harm| harm.until).min().filter(|at| *at <= next.min(world.end))
        {
            sleep_until(at).await;
            let (due, rest) = std::mem::take(&mut harmed).into_iter().partition(|harm| harm.until <= at);
            harmed = rest;
            heal(&world, due);
        }
        sleep_until(next.min(world.end)).await;
        world.lock().counts.faults += 1;
        world.note_firsts();
        let process = &processes[random.place(processes.len())];
        match (random.below(if world.plan.ledger.is_some() { 13 } else { 9 }), world.plan.ledger) {
            (0, _) => restart_store(&world, &mut random).await,
            (1, _) => reap(&world),
            (2, _) if world.plan.operator => take_node(&world, &mut random),
            (3, _) if world.plan.operator => end_session(&world, &mut random),
            (4, _) if world.plan.closes => process.replace(&mut random),
            (9, Some(ledger)) if ledger.fences => harmed.extend(open_fence(&world, &mut random)),
            (10, Some(ledger)) if ledger.locks => harmed.extend(lock_scope(&world, &mut random)),
            (11, Some(ledger)) if ledger.slow > 0 => {
                harmed.push(slow_down(&world, &mut random, process, ledger.slow));
            }
            (12, Some(ledger)) if ledger.kills => {
                let from = random.place(processes.len());
                let killed = processes.iter().cycle().skip(from).take(random.within(1, 3) as usize);
                killed.for_each(|process| process.kill());
            }
            _ => harmed.extend(harm(&world, &mut random, process)),
        }
    }
    heal(&world, harmed);
}

async fn restart_store(world: &World, random: &mut Random) {
    if world.was_lossy_lately() && !random.once_in(4) {
        return;
    }
    world.note(|| "FAULT the store stops".into());
    world.disturb_all(Instant::now());
    world.store.stop();
    sleep(random.millis(1500)).await;
    if world.plan.ledger.is_some() {
        sleep(Duration::from_millis(1)).await;
    }
    world.note(|| "the store starts".into());
    world.disturb_all(Instant::now());
    world.start(random, true);
}
