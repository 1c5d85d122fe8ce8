//! The faults of links, server and nodes, derived from the seed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use zlock::mem::{Arrival, Fate, MemLink, MemServer, Operation};

use super::process::Process;
use super::random::Random;
use super::world::World;

/// Decides the fate of each request, and the events right before it takes effect.
pub(crate) fn hook(world: &Arc<World>) -> impl FnMut(&MemServer, &Arrival) -> Fate + Send + 'static {
    // Weak, because the server owns the hook, and the world owns the server.
    let (world, mut random) = (Arc::downgrade(world), Random::of(world.plan.seed, 1));
    move |_, arrival| {
        let Some(world) = world.upgrade() else { return Fate::Pass };
        world.count_request();
        world.check();
        let client = arrival.session.and_then(|session| world.client_of(session));
        if random.once_in(world.plan.race) && Instant::now() < world.end {
            race(&world, &mut random, arrival.operation);
        }
        if let Some(path) = &arrival.parent {
            world.note_first(path);
        }
        world.look_at_job();
        let fate = if Instant::now() < world.end && random.once_in(world.plan.lose) {
            random.pick(&[Fate::LoseRequest, Fate::LoseAnswer])
        } else {
            Fate::Pass
        };
        let who = client.map_or("c?".into(), |client| format!("c{client}"));
        let parent = arrival.parent.as_ref().map_or("", |p| p.as_str());
        world.note(|| format!("{who} {:?} > {:?} {parent} {fate:?}", arrival.session, arrival.operation));
        if fate != Fate::Pass {
            world.lock().counts.faults += 1;
            match client {
                Some(client) => world.disturb(client, Instant::now()),
                None => world.disturb_all(),
            }
        }
        fate
    }
}

/// Triggers an event right before a request.
fn race(world: &World, random: &mut Random, before: Operation) {
    match random.below(4) {
        0 if world.plan.operator => take_node(world, random),
        1 if world.plan.operator => end_session(world, random),
        2 if before != Operation::Create => reap(world),
        3 if world.plan.harm_every > 0 => {
            let clients: Vec<MemLink> = world.lock().clients.iter().map(|c| c.link.clone()).collect();
            let client = random.place(clients.len());
            world.note(|| format!("FAULT reset c{client}"));
            world.disturb(client, Instant::now());
            clients[client].reset();
        }
        _ => reap(world),
    }
}

fn reap(world: &World) {
    world.note(|| "FAULT empty parents go".into());
    world.server.reap_containers();
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
    world.take(&[place.number]);
    world.server.remove(path, place.name.as_str());
}

/// An operator ends a session.
fn end_session(world: &World, random: &mut Random) {
    let sessions = world.server.sessions();
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
    world.take(&of_session);
    if let Some(client) = world.client_of(session) {
        world.disturb(client, Instant::now());
    }
    world.server.expire(session);
}

/// Injects faults into links and server until the end, and heals them.
pub(crate) async fn nemesis(world: Arc<World>, processes: Vec<Arc<Process>>) {
    let mut random = Random::of(world.plan.seed, 2);
    let mut harmed: Vec<(Instant, usize, MemLink)> = Vec::new();
    let every = world.plan.harm_every;
    let mut next = Instant::now();
    while every > 0 && Instant::now() < world.end {
        next += random.millis(every) + Duration::from_millis(1);
        while let Some(at) = harmed.iter().map(|(at, ..)| *at).min().filter(|at| *at <= next.min(world.end)) {
            sleep_until(at).await;
            let (due, rest) = std::mem::take(&mut harmed).into_iter().partition(|(due, ..)| *due <= at);
            harmed = rest;
            heal(&world, due);
        }
        sleep_until(next.min(world.end)).await;
        world.lock().counts.faults += 1;
        let process = &processes[random.place(processes.len())];
        match random.below(9) {
            0 => restart_server(&world, &mut random).await,
            1 => reap(&world),
            2 if world.plan.operator => take_node(&world, &mut random),
            3 if world.plan.operator => end_session(&world, &mut random),
            4 if world.plan.closes => process.replace(&mut random),
            _ => harmed.extend(harm(&world, &mut random, process)),
        }
    }
    heal(&world, harmed);
}

async fn restart_server(world: &World, random: &mut Random) {
    world.note(|| "FAULT the server stops".into());
    world.disturb_all();
    world.server.stop();
    sleep(random.millis(1500)).await;
    world.note(|| "the server starts".into());
    world.disturb_all();
    world.server.start();
}

/// Injects a fault into a link. Returns its end, if it does not pass by itself.
fn harm(world: &World, random: &mut Random, process: &Process) -> Option<(Instant, usize, MemLink)> {
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
    Some((Instant::now() + random.millis(length), client, link))
}

fn heal(world: &World, links: Vec<(Instant, usize, MemLink)>) {
    for (_, client, link) in links {
        world.note(|| format!("c{client} is healed"));
        link.heal();
        world.set_healthy(client, true);
    }
}
