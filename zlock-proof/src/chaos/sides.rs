//! The two sides of a split: each half of the clients has links of its own to the servers.

use std::net::SocketAddr;

use zlock_testkit::{Cut, FaultProxy, Flow};

/// A half of the clients: those with even numbers, or those with odd numbers. Each role of clients is on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Even,
    Odd,
}

impl Side {
    pub(crate) fn of(client: usize) -> Self {
        if client.is_multiple_of(2) { Side::Even } else { Side::Odd }
    }

    pub(crate) fn other(self) -> Self {
        if self == Side::Even { Side::Odd } else { Side::Even }
    }
}

/// The links of both sides to all servers. A client's own links lead to these, so its own faults do not end a split.
#[derive(Debug)]
pub(crate) struct Sides([Vec<FaultProxy>; 2]);

impl Sides {
    pub(crate) async fn start(servers: &[SocketAddr]) -> Self {
        let mut sides = [Vec::new(), Vec::new()];
        for side in &mut sides {
            for server in servers {
                side.push(FaultProxy::start(*server).await);
            }
        }
        Sides(sides)
    }

    fn links(&self, side: Side) -> &[FaultProxy] {
        &self.0[side as usize]
    }

    /// Returns the addresses of the servers for a side.
    pub(crate) fn addrs(&self, side: Side) -> Vec<SocketAddr> {
        self.links(side).iter().map(FaultProxy::addr).collect()
    }

    /// Ends all connections of a side. From now on, it reaches only these servers.
    pub(crate) async fn leave(&self, side: Side, reaches: impl Fn(usize) -> bool) {
        for (server, link) in self.links(side).iter().enumerate() {
            if !reaches(server) {
                link.refuse().await;
            }
        }
        self.links(side).iter().for_each(|link| link.cut(Cut::Reset));
    }

    /// Sets what happens to a server's responses to a side.
    pub(crate) fn responses(&self, side: Side, server: usize, flow: Flow) {
        self.links(side)[server].to_client(flow);
    }

    pub(crate) async fn heal(&self) {
        for link in self.0.iter().flatten() {
            link.heal().await;
        }
    }
}
