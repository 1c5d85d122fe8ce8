//! The certificates of TLS connections.

use crate::settings::text_or_file::TextOrFile;

/// The certificates of TLS connections, which are read when a connection is made.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The authorities that sign the servers' certificates.
    pub authorities: Option<TextOrFile>,
    /// The client's certificate and its key.
    pub identity: Option<(TextOrFile, TextOrFile)>,
}

impl Tls {
    /// Returns the authorities.
    ///
    /// # Errors
    /// A message if there are none, for [`Options::invalid`](super::Options::invalid).
    pub fn authorities(&self) -> Result<&TextOrFile, String> {
        let none = "TLS needs the authorities that sign the servers' certificates";
        self.authorities.as_ref().ok_or_else(|| none.to_owned())
    }

    /// Returns `true` if a file must be read before a connection is made.
    #[must_use]
    pub fn has_files(&self) -> bool {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.authorities.iter().chain(identity).any(|text| text.file().is_some())
    }
}
