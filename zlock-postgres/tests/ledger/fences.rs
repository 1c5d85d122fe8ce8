//! The fence in users' transactions.

use tokio_postgres::IsolationLevel;
use zlock_core::NodeName;
use zlock_ledger::{Cond, Lane as _, Write};
use zlock_postgres::Fence;
use zlock_testkit::limit;

use crate::setup::{Store, append, delete, id, is_busy, queue, tx, value};

fn relabel(key: &str, label: &str) -> Write {
    Write::Update { key: key.into(), label: Some(label.into()), data: None }
}

fn write(key: &str) -> Write {
    Write::Update { key: key.into(), label: None, data: Some(b"revoked".to_vec()) }
}

#[tokio::test]
async fn a_fenced_node_stays_and_does_not_change_its_label() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let node_id = id();
        client.create("/q", &node_id).await;
        client.transact(tx(queue("/q"), &[], &[relabel(&node_id, "write")])).await.unwrap();
        let fence = Fence::new(&NodeName::new(&*node_id)).unwrap();
        let mut user = store.connect("zlock").await;
        for level in
            [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable]
        {
            let open = user.build_transaction().isolation_level(level).start().await.unwrap();
            open.query_typed(fence.sql(), &fence.params()).await.unwrap();
            is_busy(&client.transact(delete("/q", &node_id)).await);
            // A reader does not mind, nor does it mind that it is asked to release the lock.
            assert!(
                client
                    .transact(tx(queue("/q"), &[], &[relabel(&node_id, "write"), write(&node_id)]))
                    .await
                    .is_ok()
            );
            open.commit().await.unwrap();

            let open = user.build_transaction().isolation_level(level).start().await.unwrap();
            let writers = fence.clone().of_writer();
            open.query_typed(writers.sql(), &writers.params()).await.unwrap();
            is_busy(&client.transact(tx(queue("/q"), &[], &[relabel(&node_id, "read")])).await);
            is_busy(&client.transact(delete("/q", &node_id)).await);
            // Beside another one.
            let created = client.read(queue("/q"), zlock_ledger::Range::All).await[0].created;
            let alive = Cond::Alive { scope: queue("/q"), key: node_id.clone(), created };
            assert_eq!(client.transact(tx(value("/v"), &[alive], &[])).await.unwrap().failed, None);
            open.commit().await.unwrap();
        }
        client.transact(tx(queue("/q"), &[], &[relabel(&node_id, "read")])).await.unwrap();
        let writers = fence.clone().of_writer();
        let lost = user.query_typed(writers.sql(), &writers.params()).await.unwrap_err();
        assert_eq!(lost.code().unwrap().code(), Fence::LOST);
        client.delete("/q", &node_id).await;
        let lost = user.query_typed(fence.sql(), &fence.params()).await.unwrap_err();
        assert_eq!(lost.code().unwrap().code(), Fence::LOST);
    })
    .await;
}

/// A value or a member of that name is no node.
#[tokio::test]
async fn only_nodes_have_fences() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        client.put("/v", b"").await;
        let user = store.connect("zlock").await;
        for other in ["", " ", "x", "/v", &id()] {
            let lost = user.execute(Fence::SQL, &[&other]).await.unwrap_err();
            assert_eq!(lost.code().unwrap().code(), Fence::LOST, "{other:?}");
        }
        let node_id = id();
        client.lane.transact(&[append("/q", &node_id)]).await.unwrap();
        user.execute(Fence::SQL, &[&node_id]).await.unwrap();
    })
    .await;
}
