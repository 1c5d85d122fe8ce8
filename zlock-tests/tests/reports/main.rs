//! What a client reports to its observer and to tracing.

mod observer;
mod spans;
