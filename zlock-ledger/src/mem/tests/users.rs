use super::*;
use crate::{End, Ended};

fn protect(pure: &mut Pure, key: &str) {
    assert_eq!(pure.0.protect(&queue(), key).unwrap().unwrap().key, key);
}

#[test]
fn a_protected_node_stays_as_it_is() {
    let mut pure = Pure::new(Class::Lossy);
    let node = pure.write(ONE, vec![append("a")]).unwrap();
    protect(&mut pure, "a");
    protect(&mut pure, "a");
    for then in [delete("a"), relabel("a", "read"), set_data("a", b"x")] {
        assert_eq!(fault(pure.run(ONE, tx(vec![append("b"), then]))), "Busy");
    }
    // The create of another session would replace it; a repetition of its own does not.
    assert_eq!(fault(pure.run(TWO, tx(vec![append("a")]))), "Busy");
    assert_eq!(pure.write(ONE, vec![append("a")]).unwrap().created, node.created);
    assert_eq!(fault(pure.0.sweep(ONE, pure.0.live, &["a".into()])), "Busy");
    assert_eq!(pure.keys(), ["a"]);
    pure.0.unprotect(&queue(), "a");
    assert_eq!(fault(pure.run(ONE, tx(vec![delete("a")]))), "Busy");
    pure.0.unprotect(&queue(), "a");
    pure.write(ONE, vec![delete("a")]);
    assert!(pure.keys().is_empty());
}

#[test]
fn a_protected_node_survives_its_session() {
    let mut pure = Pure::new(Class::Lossy);
    pure.write(ONE, vec![append("a")]);
    pure.write(ONE, vec![append("b")]);
    protect(&mut pure, "a");
    let end = End { session: ONE, beat: Some(0) };
    assert_eq!(pure.0.end(&[end], &[]), [Ended::Over]);
    assert_eq!(pure.keys(), ["a"]);
    assert!(pure.0.look(&[ONE]).is_empty());
    // Nobody protects it any more, but for those who do already.
    assert_eq!(fault(pure.0.protect(&queue(), "a")), "SessionOver");
    pure.0.unprotect(&queue(), "a");
    assert_eq!(pure.0.end(&[end], &[]), [Ended::Over]);
    assert!(pure.keys().is_empty());
}

#[test]
fn what_does_not_exist_is_not_protected() {
    let mut pure = Pure::new(Class::Lossy);
    assert!(pure.0.protect(&queue(), "a").unwrap().is_none());
    let value = Write::Append { key: String::new(), owned: false, label: None, data: vec![] };
    pure.run(ONE, tx_in(scope(Kind::Value, "/v"), vec![], vec![value])).unwrap();
    assert_eq!(fault(pure.0.protect(&scope(Kind::Value, "/v"), "")), "Invalid");
}

#[tokio::test(start_paused = true)]
async fn a_restart_rolls_users_back() {
    let store = MemStore::new(Settings { class: Class::OneServer, ..Settings::default() });
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    one(&lane, tx(vec![append("a")])).await.unwrap();
    let before = store.protect(&queue(), "a").unwrap().unwrap();
    assert!(store.protect(&queue(), "a").unwrap().unwrap().commit());
    assert!(!store.remove(&queue(), "a"));
    let locked = store.lock_scope(&queue()).unwrap();
    assert!(store.lock_scope(&queue()).is_none());
    store.restart();
    assert!(store.lock_scope(&queue()).is_some());
    assert_eq!(fault(store.protect(&queue(), "a")), "Unswept");
    // Sweep: the new transaction is not ended by the end of the old ones.
    let client = client.ledger.calm(None, no_hints()).await.unwrap();
    assert!(client.sweep(ONE, store.incarnation(), &[]).await.unwrap());
    let after = store.protect(&queue(), "a").unwrap().unwrap();
    assert!(!before.commit());
    drop(locked);
    assert!(!store.remove(&queue(), "a"));
    drop(after);
    assert!(store.remove(&queue(), "a"));
}

#[tokio::test(start_paused = true)]
async fn the_patient_lane_waits_for_a_moment() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let (fast, patient) = (client.lane(Wire::Fast).await, client.lane(Wire::Patient).await);
    let elapsed = tokio::time::Instant::now;
    let began = elapsed();
    let lock = store.lock_scope(&queue()).unwrap();
    assert_eq!(fault(one(&fast, tx(vec![append("a")])).await), "Busy");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(fault(one(&patient, tx(vec![append("a")])).await), "Busy");
    assert_eq!(began.elapsed(), millis(200));
    let append = tx(vec![append("a")]);
    let free = async {
        tokio::time::sleep(millis(50)).await;
        drop(lock);
    };
    assert!(tokio::join!(one(&patient, append), free).0.is_ok());
    assert_eq!(began.elapsed(), millis(250));
    // So it does for a protected node.
    let protection = store.protect(&queue(), "a").unwrap().unwrap();
    assert_eq!(fault(one(&fast, tx(vec![delete("a")])).await), "Busy");
    let free = async {
        tokio::time::sleep(millis(50)).await;
        assert!(protection.commit());
    };
    assert!(tokio::join!(one(&patient, tx(vec![delete("a")])), free).0.is_ok());
    assert_eq!(began.elapsed(), millis(300));
}
