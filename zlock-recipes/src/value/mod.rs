//! Values that outlive sessions, and what is built on them.

mod counter;
mod format;
mod shared_value;
mod watch;

pub use counter::Counter;
pub(crate) use counter::Known;
pub use format::CounterFormat;
pub use shared_value::{CompareAndSet, SharedValue};
pub use watch::{ValueView, ValueWatch};
