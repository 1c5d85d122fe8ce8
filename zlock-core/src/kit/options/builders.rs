//! The methods that the options of several stores have.

/// Writes methods of a store's options, whose field `kit` is [`Options`](crate::kit::Options).
///
/// It belongs in an `impl` and takes the names of the methods that the store has, each with what its documentation adds:
/// `new`, `srv`, `with_nameservers`, `with_prefix`, `with_ttl`, `with_connect_timeout` (with its getter), `with_operation_timeout`,
/// `with_retry`, `with_tls` and `with_tls_identity`. `new` and `srv` need a function `with_kit`, the other methods nothing. Those
/// of TLS exist with the feature `tls` of the store's crate.
#[doc(hidden)]
#[macro_export]
macro_rules! __builders {
    ($($(#[$doc:meta])* $name:ident;)*) => { $($crate::__builders!(@$name $(#[$doc])*);)* };
    (@new $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[must_use]
        pub fn new(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
            Self::with_kit($crate::kit::Options::new(hosts))
        }
    };
    (@srv $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[must_use]
        pub fn srv(domain: impl Into<String>) -> Self {
            Self::with_kit($crate::kit::Options::srv(domain))
        }
    };
    (@with_nameservers $(#[$doc:meta])*) => {
        /// Sets the name servers that look up the domain of [`srv`](Self::srv). Defaults to those of the system. Has no effect on
        /// options with hosts.
        $(#[$doc])*
        #[must_use]
        pub fn with_nameservers(
            mut self,
            nameservers: impl IntoIterator<Item = ::std::net::SocketAddr>,
        ) -> Self {
            if let Some(srv) = &mut self.kit.srv {
                srv.nameservers = nameservers.into_iter().collect();
            }
            self
        }
    };
    (@with_prefix $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[must_use]
        pub fn with_prefix(mut self, prefix: $crate::LockPath) -> Self {
            self.kit.prefix = Some(prefix);
            self
        }
    };
    (@with_ttl $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[must_use]
        pub fn with_ttl(mut self, ttl: ::std::time::Duration) -> Self {
            self.kit.session_timeout = ttl;
            self
        }
    };
    (@with_connect_timeout $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[must_use]
        pub fn with_connect_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.kit.connect_timeout = timeout;
            self
        }

        /// Returns the time limit that [`with_connect_timeout`](Self::with_connect_timeout) sets.
        #[must_use]
        pub fn connect_timeout(&self) -> ::std::time::Duration {
            self.kit.connect_timeout
        }
    };
    (@with_operation_timeout $(#[$doc:meta])*) => {
        /// Sets the time limit of one operation, including its retries and its wait for a session. Defaults to 15 seconds.
        $(#[$doc])*
        #[must_use]
        pub fn with_operation_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.kit.operation_timeout = timeout;
            self
        }
    };
    (@with_retry $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[must_use]
        pub fn with_retry(mut self, policy: $crate::RetryPolicy) -> Self {
            self.kit.retry = policy;
            self
        }
    };
    (@with_tls $(#[$doc:meta])*) => {
        /// Enables TLS. A server is trusted if its certificate is signed by one of these authorities and is valid for its
        /// name.
        ///
        $(#[$doc])*
        #[cfg(feature = "tls")]
        #[must_use]
        pub fn with_tls(mut self, ca_pem: impl Into<$crate::TextOrFile>) -> Self {
            self.kit.tls.get_or_insert_default().authorities = Some(ca_pem.into());
            self
        }
    };
    (@with_tls_identity $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[cfg(feature = "tls")]
        #[must_use]
        pub fn with_tls_identity(
            mut self,
            certificate_pem: impl Into<$crate::TextOrFile>,
            key_pem: impl Into<$crate::TextOrFile>,
        ) -> Self {
            self.kit.tls.get_or_insert_default().identity = Some((certificate_pem.into(), key_pem.into()));
            self
        }
    };
}
