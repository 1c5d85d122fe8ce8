//! The sizes of futures that nest locks: each level adds to the size, and none multiplies it.

use std::mem::size_of_val;

use tokio::task::yield_now;
use zlock::mem::MemServer;
use zlock::{Client, MultiLock};

/// The size of the innermost future.
const LARGE: usize = 16 * 1024;

/// The maximum number of bytes that a level adds to what the level inside it takes.
const LEVEL: usize = 2 * 1024;

async fn large() -> usize {
    let all = [1_u8; LARGE];
    yield_now().await;
    all.iter().map(|byte| usize::from(*byte)).sum()
}

fn client() -> Client {
    Client::new(MemServer::new().connect())
}

fn check(what: &str, sizes: [usize; 4]) {
    println!("{what}: {sizes:?}");
    for (level, pair) in sizes.windows(2).enumerate() {
        assert!(pair[1] <= pair[0] + LEVEL, "{what}: level {level} adds {} bytes", pair[1] - pair[0]);
    }
}

#[tokio::test]
async fn a_template() {
    let template = &client().lock_template("/app").unwrap();
    let one = || template.execute("1", |_| large());
    let two = || template.execute("2", |_| async { one().await.unwrap() });
    let three = || template.execute("3", |_| async { two().await.unwrap() });
    let sizes = [large(), large(), large(), large()].map(|future| size_of_val(&future));
    check("execute", [sizes[0], size_of_val(&one()), size_of_val(&two()), size_of_val(&three())]);
    assert_eq!(three().await.unwrap(), LARGE);
    let fails = template.execute_fallible("4", |_| one());
    assert!(size_of_val(&fails) <= sizes[0] + LEVEL);
    assert_eq!(fails.await.unwrap(), LARGE);
}

#[tokio::test]
async fn a_mutex() {
    let client = client();
    let [a, b, c] = &["/a", "/b", "/c"].map(|path| client.mutex(path).unwrap());
    let one = || a.run(large());
    let two = || b.run(async { one().await.unwrap() });
    let three = || c.run(async { two().await.unwrap() });
    let inner = size_of_val(&large());
    check("run", [inner, size_of_val(&one()), size_of_val(&two()), size_of_val(&three())]);
    assert_eq!(three().await.unwrap(), LARGE);
}

#[tokio::test]
async fn a_set() {
    let client = client();
    let set = |path: &str| MultiLock::new([client.mutex(path).unwrap()]).unwrap();
    let [a, b, c] = &["/a", "/b", "/c"].map(set);
    let one = || a.run(large());
    let two = || b.run(async { one().await.unwrap() });
    let three = || c.run(async { two().await.unwrap() });
    let inner = size_of_val(&large());
    check("run of a set", [inner, size_of_val(&one()), size_of_val(&two()), size_of_val(&three())]);
    assert_eq!(three().await.unwrap(), LARGE);
}

#[tokio::test]
async fn guards_and_their_scopes() {
    let client = client();
    let a = &client.mutex("/a").unwrap().acquire().await.unwrap();
    let set = MultiLock::new([client.mutex("/b").unwrap()]).unwrap();
    let b = &set.acquire().await.unwrap();
    let inner = size_of_val(&large());
    let (one, two) = (|| a.run(large()), || a.run(a.run(large())));
    check("run of a guard", [inner, size_of_val(&one()), size_of_val(&two()), size_of_val(&a.run(two()))]);
    let (one, two) = (|| a.scope(large()), || b.scope(a.scope(large())));
    check("scope", [inner, size_of_val(&one()), size_of_val(&two()), size_of_val(&b.scope(two()))]);
    assert_eq!(b.run(b.scope(two())).await.unwrap(), LARGE);
}

/// Three levels on a thread with the stack of a test.
#[test]
fn three_levels_fit_into_two_mebibytes() {
    let nested = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let template = &client().lock_template("/app").unwrap();
            let two =
                || template.execute("2", |_| async { template.execute("1", |_| large()).await.unwrap() });
            template.execute("3", |_| async { two().await.unwrap() }).await.unwrap()
        })
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(nested).unwrap();
    assert_eq!(thread.join().unwrap(), LARGE);
}
