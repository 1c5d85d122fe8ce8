//! The reports of a membership to the client's observer.

use std::mem::replace;
use std::sync::Arc;

use zlock_core::observer::{MemberState, Observer};

use zlock_core::Mutex;

use crate::client::inner::ClientInner;
use crate::report::Reports;

/// Reports the state of a membership, if its group has a name and the client has an observer.
#[derive(Debug)]
pub(super) struct MemberReports {
    name: Arc<str>,
    reports: Option<Arc<Reports>>,
    shown: Mutex<Shown>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    State(MemberState),
    /// The owner has dropped the membership.
    Dropped,
}

impl Shown {
    fn state(self) -> Option<MemberState> {
        if let Shown::State(state) = self { Some(state) } else { None }
    }
}

impl MemberReports {
    pub(super) fn new(client: &ClientInner, name: &Arc<str>) -> Self {
        let reports = client.reports().filter(|_| !name.is_empty()).cloned();
        MemberReports { name: name.clone(), reports, shown: Mutex::new(Shown::Nothing) }
    }

    pub(super) fn show(&self, state: MemberState) {
        self.change(Shown::State(state));
    }

    pub(super) fn dropped(&self) {
        self.change(Shown::Dropped);
    }

    fn change(&self, now: Shown) {
        let Some(reports) = &self.reports else { return };
        let before = {
            let mut shown = self.shown.lock();
            // A registration that was under way when the membership was dropped.
            if *shown == Shown::Dropped {
                return;
            }
            replace(&mut *shown, now)
        };
        if before.state() != now.state() {
            reports.member_changed(&self.name, before.state(), now.state());
        }
    }
}
