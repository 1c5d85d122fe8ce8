//! Credentials, which are read when a session begins.

use std::fmt;

use zlock_core::TextOrFile;

/// The credentials of a client.
#[derive(Clone)]
pub(crate) enum Credentials {
    Given(Vec<u8>),
    /// For the scheme `digest`.
    User {
        name: String,
        password: TextOrFile,
    },
}

impl Credentials {
    pub(crate) fn has_file(&self) -> bool {
        matches!(self, Credentials::User { password, .. } if password.file().is_some())
    }

    /// Returns the bytes to send. The error names the file that cannot be read.
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Credentials::Given(credentials) => Ok(credentials.clone()),
            Credentials::User { name, password } => {
                Ok(format!("{name}:{}", password.read_secret()?).into_bytes())
            }
        }
    }
}

/// Shows no credentials.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
