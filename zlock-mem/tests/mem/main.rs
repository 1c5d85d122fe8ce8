//! Tests of the server and its fault control.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod background;
mod basics;
mod common;
mod links;
mod requests;
mod sessions;
