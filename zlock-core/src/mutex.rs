//! A mutex for state that a panic leaves consistent.

use std::sync::{MutexGuard, PoisonError};

/// A [`std::sync::Mutex`] that a panic does not poison.
///
/// No code that may panic changes what is locked halfway. So a panic elsewhere must not make a second one of it, in a destructor for
/// example.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, which blocks the thread until no other one has it locked.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
