//! The pictures of `zlock record`.

#[allow(dead_code, reason = "the guide has no pages of pictures")]
#[path = "../../zlock-cli/src/timeline.rs"]
mod drawn;

pub(crate) use drawn::{Lane, Span, State, Timeline};
