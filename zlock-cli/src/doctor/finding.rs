//! The doctor's findings.

use serde_json::{Value, json};

use crate::output::{Colour, clean, paint};

/// The result of one check.
#[derive(Debug)]
pub(crate) struct Finding {
    check: &'static str,
    message: String,
    /// The suggested fix; `None` if the check passed.
    remedy: Option<String>,
}

impl Finding {
    pub(super) fn good(check: &'static str, message: impl Into<String>) -> Self {
        Finding { check, message: message.into(), remedy: None }
    }

    pub(super) fn bad(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { check, message: message.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn is_good(&self) -> bool {
        self.remedy.is_none()
    }

    pub(super) fn line(&self) -> String {
        let Finding { check, message, remedy } = self;
        let message = clean(message);
        match remedy {
            None => format!("{}  {check}: {message}", paint("ok ", Colour::Green)),
            Some(remedy) => format!("{}  {check}: {message}\n     {remedy}", paint("BAD", Colour::Red)),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let Finding { check, message, remedy } = self;
        json!({ "check": check, "ok": self.is_good(), "message": message, "remedy": remedy })
    }
}
