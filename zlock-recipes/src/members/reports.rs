//! The reports of a membership to the client's observer.

use std::mem::replace;
use std::sync::Arc;

use zlock_core::Mutex;
use zlock_core::observer::MemberState;

use crate::client::inner::ClientInner;
use crate::report::Reports;

/// Reports the state of a membership, if its group has a name and the client has an observer.
#[derive(Debug)]
pub(super) struct MemberReports {
    name: Arc<str>,
    reports: Option<Arc<Reports>>,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    state: Option<MemberState>,
    is_dropped: bool,
}

impl MemberReports {
    pub(super) fn new(client: &ClientInner, name: &Arc<str>) -> Self {
        let reports = client.reports().filter(|_| !name.is_empty()).cloned();
        MemberReports { name: name.clone(), reports, shown: Mutex::default() }
    }

    /// Shows a state, or `None` once the owner has dropped the membership.
    pub(super) fn show(&self, now: Option<MemberState>) {
        let Some(reports) = &self.reports else { return };
        let before = {
            let mut shown = self.shown.lock();
            // A registration that was under way when the membership was dropped.
            if shown.is_dropped {
                return;
            }
            shown.is_dropped = now.is_none();
            replace(&mut shown.state, now)
        };
        if before != now {
            reports.to(|observer| observer.member_changed(&self.name, before, now));
        }
    }
}
