//! Runs clients on a cluster under faults, and computes the verdict.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::agreement::disagreement;
use super::clock::{nanos, now};
use super::cluster::{Cluster, Maintained, Store};
use super::options::Options;
use super::plan::{Plan, Scale};
use super::sides::Sides;
use super::slot::Slot;
use super::storage::Storage;
use super::told::{history, socket, stop_file};
use super::verdict::{Evidence, Verdict, judge};
use super::world::World;
use crate::history::{Alive, Ended, Healed, History, Ns, holds, picture};

/// After the last fault, each client must acquire each of its locks within this time.
const HEALED_WITHIN: Duration = Duration::from_secs(30);
/// Clients must end within this time.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// Faults may take this much longer than planned. A cluster that has not recovered by then is broken.
const FAULTS_LATE: Duration = Duration::from_secs(120);

/// Runs everything and prints the verdict.
pub(crate) async fn run(options: &Options) -> Verdict {
    let folder = tempfile::Builder::new().prefix("zlock-chaos-").tempdir().expect("a folder");
    println!("{options}: starting the servers, histories in {}", folder.path().display());
    let cluster = Cluster::start(options.store, options.seed, options.session).await;
    let servers = cluster.version();
    println!("servers: {servers}");
    let scale = Scale {
        clients: options.clients,
        servers: cluster.addrs().len(),
        can_cut_off: options.store == Store::Zk,
        is_pair: options.store == Store::Postgres,
        session: options.session,
        time: options.time,
    };
    let plan = Plan::new(options.seed, scale);
    println!("plan:\n{plan}run, from {} on:", now());
    let storage = Storage::start(&socket(folder.path())).expect("a storage");
    let sides = match options.store {
        Store::Zk => Some(Sides::start(&cluster.addrs()).await),
        Store::Etcd | Store::Postgres | Store::Mysql => None,
    };
    let world = Arc::new(World {
        cluster,
        sides,
        processes: (0..options.clients).map(|_| Mutex::default()).collect(),
        session: options.session,
        folder: folder.path().to_owned(),
        began: Instant::now(),
        log: Mutex::default(),
    });
    let stalls = tokio::spawn({
        let world = world.clone();
        async move { world.watch_for_stalls().await }
    });
    let (slots, healed) = through_faults(&world, plan, options).await;
    let alive: Vec<_> = slots.iter().map(|slot| (slot.name(), slot.manner().locks())).collect();
    let within = Duration::from_nanos(healed.within);
    wait_for_all(&world, &slots, &alive, healed.at, within).await;
    // While the clients are running, and again when all have ended: either may hide what the other shows.
    compare(&world, "while clients are there").await;
    let histories = stop(&world, slots).await;
    let residue = world.cluster.residue(options.session * 2 + Duration::from_secs(5)).await;
    compare(&world, "when all clients have ended").await;
    stalls.abort();

    let log = std::mem::take(&mut *world.log.lock().expect("nobody panicked"));
    let evidence = Evidence {
        servers,
        histories,
        accepted: storage.accepted(),
        alive,
        healed,
        residue,
        timeout: nanos(options.session),
        log,
    };
    let verdict = judge(&evidence);
    let kept = (verdict != Verdict::Good).then(|| folder.keep());
    if let Some(folder) = &kept {
        println!("the histories are kept in {}", folder.display());
    }
    if let Some(file) = options.picture.clone().or(kept.map(|folder| folder.join("picture.html"))) {
        let (histories, endings) = (&evidence.histories, &evidence.log.endings);
        let page =
            picture(&format!("{options}, {}", evidence.servers), histories, &holds(histories), endings);
        std::fs::write(&file, page).expect("a file for the picture");
        println!("drawn in {}", file.display());
    }
    verdict
}

/// Records disagreements between the servers.
async fn compare(world: &World, when: &str) {
    for what in disagreement(&world.cluster).await {
        world.disagreement(format!("{when}: {what}"));
    }
}

/// Starts the clients and carries out the plan.
async fn through_faults(world: &Arc<World>, plan: Plan, options: &Options) -> (Vec<Slot>, Healed) {
    let (seed, late) = (options.seed, world.began + options.time + FAULTS_LATE);
    let mut tracks = JoinSet::new();
    for (number, track) in plan.clients.into_iter().enumerate() {
        let world = world.clone();
        tracks.spawn(async move {
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(1000 * number as u64);
            let mut slot = Slot::start(number, seed, world.clone()).await;
            for planned in track {
                sleep_until(world.began + planned.at).await;
                slot.suffer(planned.fault).await;
            }
            (number, slot)
        });
    }
    let mut cluster = tokio::spawn({
        let world = world.clone();
        async move { world.disturb_cluster(plan.cluster).await }
    });
    let done = Arc::<Maintained>::default();
    let maintenance = tokio::spawn({
        let (world, done) = (world.clone(), done.clone());
        async move { world.cluster.maintain(&done, |since| world.leader_moved(since)).await }
    });
    let mut slots = tracks.join_all().await;
    slots.sort_by_key(|(number, _)| *number);
    match timeout_at(late, &mut cluster).await {
        Ok(ended) => ended.expect("the cluster's track"),
        Err(_) => {
            cluster.abort();
            world.disagreement(format!(
                "they were not one cluster again {FAULTS_LATE:?} after the last fault"
            ));
        }
    }
    maintenance.abort();
    world.say(format!("the last fault is over; {done:?}"));
    let within = nanos(HEALED_WITHIN);
    (slots.into_iter().map(|(_, slot)| slot).collect(), Healed { at: now(), within })
}

/// Waits until each client has acquired each of its locks since then, or until the time limit.
async fn wait_for_all(world: &World, slots: &[Slot], alive: &[Alive], since: Ns, within: Duration) {
    let until = Instant::now() + within;
    while Instant::now() < until {
        sleep(Duration::from_millis(500)).await;
        let histories = read(world, slots);
        let holds = holds(&histories);
        let had = |client: &String, lock: &str| {
            holds.iter().any(|hold| {
                hold.client == *client
                    && hold.lock == lock
                    && hold.from >= since
                    && hold.ended == Ended::Released
            })
        };
        if alive.iter().all(|(client, locks)| locks.iter().all(|lock| had(client, lock))) {
            return;
        }
    }
}

/// Ends the clients and reads their histories.
async fn stop(world: &World, slots: Vec<Slot>) -> Vec<History> {
    let names: Vec<_> = slots.iter().flat_map(Slot::names).collect();
    std::fs::write(stop_file(&world.folder), "").expect("a file");
    let mut ends = JoinSet::new();
    for slot in slots {
        ends.spawn(async move { (slot.name(), slot.stop(STOP_WITHIN).await) });
    }
    for (name, well) in ends.join_all().await {
        if !well {
            world.violation(format!("{name} did not exit successfully within {STOP_WITHIN:?}"));
        }
    }
    world.say("all clients have ended");
    names.iter().filter_map(|name| read_one(world, name)).collect()
}

fn read(world: &World, slots: &[Slot]) -> Vec<History> {
    slots.iter().flat_map(Slot::names).filter_map(|name| read_one(world, &name)).collect()
}

/// Returns the history of a process, or `None` if it was killed before it began.
fn read_one(world: &World, name: &str) -> Option<History> {
    let text = std::fs::read_to_string(history(&world.folder, name)).ok()?;
    Some(History::parse(name, &text).expect("a history"))
}
