//! Errors of the server.

use tokio_postgres::Error;

/// Returns the SQLSTATE of a result that is an error of the server.
///
/// # Panics
/// Panics if it is none.
pub fn sqlstate<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().code().expect("an error of the server").code().to_owned()
}
