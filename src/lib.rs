//! zlock
