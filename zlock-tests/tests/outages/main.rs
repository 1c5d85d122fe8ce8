//! Links and servers that fail for a while, or that get more work than they can do.

/// One test for each combination of what is lost and how.
macro_rules! each_fault {
    ($($name:ident: $body:ident;)*) => {$(
        mod $name {
            use super::*;
            each_fault!(@ $body, request_fin Request Fin, request_reset Request Reset, request_mute Request Mute,
                answer_fin Answer Fin, answer_reset Answer Reset, answer_mute Answer Mute);
        }
    )*};
    (@ $body:ident, $($name:ident $lose:ident $cut:ident),*) => {$(
        #[tokio::test]
        async fn $name() {
            limit($body(Lose::$lose, Cut::$cut)).await;
        }
    )*};
}

mod mem {
    mod faults;
    mod outage;
    mod outside;
    mod overload;
    mod values;
}
mod zk {
    mod disagreement;
    mod faults;
    mod outage;
    mod overload;
    mod quota;
    mod storm;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod behind;
    mod causes;
    mod faults;
    mod leaders;
    mod outage;
    mod overload;
    mod restore;
    mod streams;
    mod values;
}
#[cfg(feature = "mysql")]
mod mysql {
    mod failover;
    mod late;
    mod restart;
}
#[cfg(feature = "postgres")]
mod postgres {
    mod clock;
    mod failover;
    mod late;
}
