//! What a client reports to its observer and to tracing.

mod ends;
mod jobs;
mod members;
mod observer;
mod outages;
mod spans;
