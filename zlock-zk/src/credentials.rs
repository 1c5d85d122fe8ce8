//! Credentials, which are read when a session begins.

use zlock_core::TextOrFile;

/// What a client shows to be somebody.
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

    /// What is sent; the error says which file cannot be read.
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Credentials::Given(credentials) => Ok(credentials.clone()),
            Credentials::User { name, password } => {
                Ok(format!("{name}:{}", password.read_secret()?).into_bytes())
            }
        }
    }
}
