//! Two users have a birthday at once: an age of 22 in a database that is copied to two servers.
//!
//! Each user's request reaches another server. It reads the age there, works for a moment, writes the age
//! plus one, and then copies it to the other server. Without a lock one birthday is lost, and whoever reads
//! both servers sees two ages. With the write lock the age becomes 24, and under the read lock both servers
//! always say the same, while readers read together.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use zlock::ReadWriteLock;

#[path = "common/mod.rs"]
mod common;
use common::Result;

/// The age of user 666, at the servers 8888 and 8889.
struct Database {
    age: [AtomicU32; 2],
    /// How many read at this moment, and how many did at most.
    reading: [AtomicU32; 2],
}

impl Database {
    fn new() -> Self {
        Database { age: [22.into(), 22.into()], reading: [0.into(), 0.into()] }
    }

    fn ages(&self) -> [u32; 2] {
        [0, 1].map(|server| self.age[server].load(Ordering::SeqCst))
    }

    /// One year more, by a request that reached this server.
    async fn birthday(&self, server: usize) {
        let age = self.age[server].load(Ordering::SeqCst);
        sleep(Duration::from_millis(20)).await;
        self.age[server].store(age + 1, Ordering::SeqCst);
        println!("  server {}: {age} -> {}", 8888 + server, age + 1);
        sleep(Duration::from_millis(20)).await;
        self.age[1 - server].store(age + 1, Ordering::SeqCst);
    }

    /// Reads one server, then the other. Whether both say the same.
    async fn agree(&self) -> bool {
        let [now, most] = &self.reading;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let one = self.age[0].load(Ordering::SeqCst);
        sleep(Duration::from_millis(5)).await;
        let other = self.age[1].load(Ordering::SeqCst);
        now.fetch_sub(1, Ordering::SeqCst);
        one == other
    }
}

/// One user's birthday, under the write lock if there is one.
async fn celebrate(database: &Database, server: usize, lock: Option<&ReadWriteLock>) -> Result {
    let Some(lock) = lock else {
        database.birthday(server).await;
        return Ok(());
    };
    let writing = lock.write().acquire().await?;
    database.birthday(server).await;
    // Looks at what it has written: no writer comes in between, and other readers may look, too.
    let reading = writing.downgrade().await?;
    let agree = database.agree().await;
    reading.release().await?;
    if agree { Ok(()) } else { Err("somebody wrote in between".into()) }
}

/// Looks again and again. How often the servers did not agree.
async fn watch(database: &Database, lock: Option<&ReadWriteLock>) -> Result<u32> {
    let mut differ = 0;
    for _ in 0..10 {
        let guard = match lock {
            Some(lock) => Some(lock.read().acquire().await?),
            None => None,
        };
        differ += u32::from(!database.agree().await);
        if let Some(guard) = guard {
            guard.release().await?;
        }
    }
    Ok(differ)
}

/// Two birthdays and some readers at once. How often the servers did not agree.
async fn run(database: &Database, locks: [Option<&ReadWriteLock>; 2]) -> Result<u32> {
    let ((), (), one, two, three) = tokio::try_join!(
        celebrate(database, 0, locks[0]),
        celebrate(database, 1, locks[1]),
        watch(database, locks[0]),
        watch(database, locks[1]),
        watch(database, locks[1]),
    )?;
    Ok(one + two + three)
}

async fn example(url: &str) -> Result<bool> {
    println!("Without a lock:");
    let database = Database::new();
    let differ = run(&database, [None, None]).await?;
    println!("  = ages {:?}, the servers differed {differ} times", database.ages());

    println!("\nWith the read/write lock /users/666 on {url}:");
    // A client each, as if they were two processes.
    let clients = [zlock::connect(url).await?, zlock::connect(url).await?];
    let one = clients[0].read_write_lock("/users/666")?;
    let other = clients[1].read_write_lock("/users/666")?;
    let database = Database::new();
    let differ = run(&database, [Some(&one), Some(&other)]).await?;
    let together = database.reading[1].load(Ordering::SeqCst);
    println!("  = ages {:?}, the servers differed {differ} times, {together} read together", database.ages());
    for client in clients {
        client.close().await?;
    }
    Ok(database.ages() == [24, 24] && differ == 0 && together > 1)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::main("read_write", "mem://read_write", example).await
}
