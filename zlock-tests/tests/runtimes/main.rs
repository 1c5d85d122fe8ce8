//! Runtimes and threads: which ones may end, block or be left, and what is sent on which.

mod blocking;
mod blocking_jobs;
mod dedicated_thread;
mod ended;
mod mem;
mod thread_locals;
mod zk;
