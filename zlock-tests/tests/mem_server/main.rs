//! Tests of the server and its fault control.

mod background;
mod basics;
mod common;
mod links;
mod requests;
mod sessions;
