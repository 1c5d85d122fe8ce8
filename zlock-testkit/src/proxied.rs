//! The links between a store's backends and its server.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use zlock_core::CoordinationBackend;
use zlock_suite::{Connection, Links};

use crate::{Cut, FaultProxy, Flow};

type Start = dyn Fn() -> Pin<Box<dyn Future<Output = FaultProxy> + Send>> + Send + Sync;
type ConnectLazy = dyn Fn(&FaultProxy) -> Arc<dyn CoordinationBackend> + Send + Sync;

/// A proxy for each connection; their order gives the keys.
pub(crate) struct ProxiedLinks {
    start: Box<Start>,
    connect_lazy: Box<ConnectLazy>,
    proxies: Mutex<Vec<Arc<FaultProxy>>>,
}

impl ProxiedLinks {
    pub(crate) fn new<F: Future<Output = FaultProxy> + Send + 'static>(
        start: impl Fn() -> F + Send + Sync + 'static,
        connect_lazy: impl Fn(&FaultProxy) -> Arc<dyn CoordinationBackend> + Send + Sync + 'static,
    ) -> Self {
        let start = Box::new(move || Box::pin(start()) as Pin<Box<_>>);
        ProxiedLinks { start, connect_lazy: Box::new(connect_lazy), proxies: Mutex::default() }
    }

    /// Starts the proxy of the next connection.
    pub(crate) async fn proxy(&self) -> FaultProxy {
        (self.start)().await
    }

    /// Adds a backend that is connected through this proxy.
    pub(crate) fn add(&self, backend: Arc<dyn CoordinationBackend>, proxy: FaultProxy) -> Connection {
        let mut proxies = self.proxies.lock().unwrap();
        proxies.push(Arc::new(proxy));
        Connection { backend, key: proxies.len() - 1 }
    }

    pub(crate) fn of(&self, connection: &Connection) -> Arc<FaultProxy> {
        self.proxies.lock().unwrap()[connection.key].clone()
    }
}

#[async_trait]
impl Links for ProxiedLinks {
    async fn connect_cut(&self) -> Connection {
        let proxy = self.proxy().await;
        proxy.refuse().await;
        self.add((self.connect_lazy)(&proxy), proxy)
    }

    async fn cut(&self, connection: &Connection) {
        let proxy = self.of(connection);
        proxy.refuse().await;
        proxy.cut(Cut::Fin);
    }

    async fn freeze(&self, connection: &Connection) {
        self.of(connection).freeze().await;
    }

    async fn mute(&self, connection: &Connection) {
        self.of(connection).to_client(Flow::Swallow);
    }

    async fn heal(&self, connection: &Connection) {
        self.of(connection).heal().await;
    }
}
