//! zlock-zk
