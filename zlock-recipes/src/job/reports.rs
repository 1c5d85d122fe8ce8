//! The reports of a job to the client's observer.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::observer::Observer;

use crate::client::Client;
use crate::job::record::Run;

/// Reports what happens to a job, if it has a name and the client has an observer.
#[derive(Clone, Debug)]
pub(super) struct JobReports {
    pub(super) client: Client,
    pub(super) name: Arc<str>,
}

impl JobReports {
    pub(super) fn report(&self, report: impl FnOnce(&dyn Observer, &str)) {
        if let Some(reports) = self.client.inner().reports().filter(|_| !self.name.is_empty()) {
            reports.to(|observer| report(observer, &self.name));
        }
    }

    /// Reports the last success, according to a record, of a job with this period.
    pub(super) fn saw(&self, run: Option<&Run>, period: Duration) {
        if let Some(done) = run.and_then(|run| run.last_done) {
            self.report(|observer, name| observer.job_last_done(name, done.time(), period));
        }
    }
}
