//! Links and servers that fail for a while, or that get more work than they can do.

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
#[cfg(feature = "postgres")]
mod postgres {
    mod clock;
    mod failover;
    mod late;
}
