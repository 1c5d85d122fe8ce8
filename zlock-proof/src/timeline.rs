//! The pictures of `zlock record`.

#[allow(dead_code, reason = "a history has no silent clients")]
#[path = "../../zlock-cli/src/timeline.rs"]
mod drawn;

pub(crate) use drawn::{Band, Lane, Ms, Span, State, Timeline, page};
