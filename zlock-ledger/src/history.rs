//! The history of the store, as an operator sees it.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use zlock_core::kit::Failure as _;
use zlock_core::{Class, Result, StoreHistory, StoreSettings};

use crate::backend::LedgerBackend;
use crate::ledger::{Calm as _, Fault, Ledger, Setup};

/// The time between two looks at whether quiet time is over.
const LOOK: Duration = Duration::from_millis(500);

impl<L: Ledger> LedgerBackend<L> {
    /// Waits for the answer to a request that needs no session.
    async fn ask<R>(
        &self,
        request: impl AsyncFnOnce(&L::Calm, Duration) -> std::result::Result<R, Fault>,
    ) -> Result<R> {
        let limit = self.shared.options.operation_timeout;
        let answer = async {
            let calm = self.shared.calm(None).await?;
            self.shared.ask(&calm, limit, request(&calm, limit)).await
        };
        answer.await.map_err(|fault| {
            let error = self.shared.options.connect_error(fault.classify().kind);
            fault.explain(error)
        })
    }
}

#[async_trait]
impl<L: Ledger> StoreHistory for LedgerBackend<L> {
    async fn settings(&self) -> Result<StoreSettings> {
        let setup: Setup = self.ask(async |calm, _| calm.setup().await).await?;
        let mut settings = StoreSettings::new(setup.class, setup.is_lossy, setup.longest, setup.overlap);
        settings.reason = setup.reason;
        settings.settles_in =
            setup.history.watched.map(|watched| setup.history.quiet.saturating_sub(watched));
        Ok(settings)
    }

    async fn set_class(&self, class: Class) -> Result<()> {
        self.ask(async |calm, _| calm.set_class(class).await).await
    }

    async fn settle(&self) -> Result<()> {
        while self.settings().await?.settles_in.is_some() {
            if let Some(session) = self.shared.sessions.current_key() {
                // At rest, the session does not know yet that it is over. The next one watches.
                let checked = self.ask(async |calm, _| Ok(calm.changed(session.id, &[]).await)).await?;
                let _ = self.shared.judge(session, checked);
            }
            self.shared.sessions.sleep_until(Instant::now() + LOOK).await.map_err(|closed| {
                closed.explain(self.shared.options.connect_error(closed.classify().kind))
            })?;
        }
        Ok(())
    }

    async fn restored(&self) -> Result<()> {
        self.ask(async |calm, _| calm.restored(calm.setup().await?.history.incarnation).await).await
    }
}
