//! The ways in.

/// Where something came in. Closed: it labels metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entry {
    /// A DNS query.
    Dns,
    /// CONNECT at the proxy's port.
    Connect,
    /// A request with a whole URI at the proxy's port.
    Absolute,
    /// TLS, at the address that DNS gave.
    Tls,
    /// HTTP, at the address that DNS gave.
    Http,
    /// Anything, at a port that stands for one host.
    Tcp,
    /// The port that no sandbox may reach.
    Tripwire,
}

impl Entry {
    /// The spelling in metrics, records and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Absolute => "absolute",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Tripwire => "tripwire",
        }
    }
}
