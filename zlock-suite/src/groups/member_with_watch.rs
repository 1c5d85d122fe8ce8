//! `member_with_watch`.

use tokio::time::timeout;
use zlock_core::{ErrorKind, LockPath, MemberContents, Watch};

use super::{contents, member, register, remove, replace};
use crate::{Case, Connection};

/// Returns the contents of a member, or `None` if the store's listing has them. There this method is never called.
async fn read(
    case: &Case<'_>,
    connection: &Connection,
    member: &LockPath,
) -> Option<Option<(MemberContents, Watch)>> {
    match connection.member_with_watch(member).await {
        Ok(read) => Some(read),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let (listed, _) = connection.members_with_watch(&case.path("group")).await.unwrap();
            assert!(listed.iter().all(|member| member.contents.is_some()), "nothing shows the contents");
            None
        }
    }
}

/// The contents are those of the last join, byte for byte.
pub async fn contents_are_those_of_the_last_join(case: &Case<'_>) {
    let (a, b, w7) = (case.connect().await, case.connect().await, member(case, "w7"));
    for data in [&b""[..], b"10.0.0.7:80", &[0, 255, 10]] {
        let first = register(&a, &w7, data).await;
        let read_by = read(case, &b, &w7).await.flatten();
        let now = match read_by {
            Some((now, _)) => now,
            None => contents(&b, &case.path("group")).await.remove("w7").unwrap(),
        };
        assert_eq!((&*now.data, now.number, now.session), (data, first.number, Some(first.session)));
        remove(&a, &w7).await;
        assert!(read(case, &b, &w7).await.flatten().is_none());
    }
}

/// No change between the response and the watch is lost.
pub async fn no_change_is_lost(case: &Case<'_>) {
    let (a, b, c, w7) =
        (case.connect().await, case.connect().await, case.connect().await, member(case, "w7"));
    register(&a, &w7, b"0").await;
    for n in 0..case.many(20, 5) {
        let by = if n % 2 == 0 { &b } else { &a };
        let (read, now) = tokio::join!(read(case, &c, &w7), replace(by, &w7, b"next"));
        let Some(read) = read else { return };
        let (seen, fires) = read.expect("it is never missing");
        if seen.number != now.number {
            let fired = timeout(case.store.session_timeout(), fires).await;
            assert!(fired.is_ok(), "replacement {n} was neither read nor reported");
        }
    }
}
