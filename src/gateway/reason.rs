//! Why something did not go out: the policy's reasons and the gateway's own, and how each is said to whom it met.

use std::{fmt::Write as _, sync::Arc};

use crate::policy::{Denial, DenyReason, Severity};

use super::{flow::Asked, framing, head::HeadError, hello::HelloError};

macro_rules! troubles {
    ($($name:ident $severity:ident $status:literal $text:literal $ask:literal,)+) => {
        /// What goes wrong at the gateway itself. Closed: it labels metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Trouble { $(#[doc = $text] $name,)+ }

        impl Trouble {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            const fn as_str(self) -> &'static str { match self { $(Self::$name => stringify!($name),)+ } }
            const fn severity(self) -> Severity { match self { $(Self::$name => Severity::$severity,)+ } }
            const fn status(self) -> u16 { match self { $(Self::$name => $status,)+ } }
            const fn words(self) -> &'static str { match self { $(Self::$name => $text,)+ } }
            const fn how_to_ask(self) -> &'static str { match self { $(Self::$name => $ask,)+ } }
        }
    };
}

troubles! {
    UnknownSource S 403 "the gateway serves sandboxes alone, and knows none at this address" "nothing to ask for; a sandbox that was just started is known within seconds",
    NotTls S 403 "what is spoken on a TLS port is not TLS" "use a rule with protocol TCP for a host that speaks something else",
    HelloMalformed S 403 "the TLS hello is malformed or too long" "use a TLS client that speaks TLS 1.2 or 1.3",
    HelloSlow N 408 "no whole TLS hello came in time" "send the hello at once",
    ServerNameMissing S 403 "the TLS hello names no host" "connect by name, so that the client sends SNI",
    ServerNameMismatch C 403 "the TLS hello names another host than CONNECT" "ask CONNECT for the host that is spoken to",
    TunnelMismatch C 403 "the request in the tunnel names another host or port than CONNECT" "ask CONNECT for the host that is spoken to",
    OpenedMismatch C 421 "the request names another host or port than the TLS hello" "open a connection for each host",
    Untrusted S 502 "the host is allowed, and its certificate is not good for its name" "the host must present a certificate for this name, of an authority that the gateway trusts",
    NotOpened N 403 "the client and the gateway found no common TLS" "trust the gateway's certificate, which SSL_CERT_FILE and its like name, and offer http/1.1",
    HeadMalformed S 400 "the request can't be read, or could be read in two ways" "send a plain HTTP/1.1 request",
    HeadControl C 400 "the request holds a control character, such as NUL" "send a plain HTTP/1.1 request",
    HeadAmbiguous C 400 "the length of the request could be read in two ways" "send one Content-Length or one Transfer-Encoding: chunked",
    HeadSlow N 408 "no whole request came in time" "send the request's head at once",
    AuthorityMismatch S 400 "the request's target and its Host field name different hosts or ports" "make them the same",
    PortUnclear S 400 "the target has no port, or one that is none" "write host:port",
    NotAProxyRequest S 400 "this port is a proxy's" "send CONNECT host:443, or GET http://host/",
    TooManyConnections N 429 "the sandbox, or this rule, has as many open connections as it may" "close some, or ask for a higher maxConnections",
    TooManyNew N 429 "the sandbox, or this rule, opens connections faster than it may" "reuse connections, or ask for a higher connectionsPerSecond",
    TooManyNames C 429 "more different names were asked for under this wildcard than an hour may have" "name the hosts in the rule one by one",
    TooManyHeads N 429 "the sandbox has too many connections that have not said what they want" "send requests at once",
    GatewayFull N 429 "the gateway has no room for more" "try again; whoever owns the gateway can give it more replicas",
    UploadSpent S 429 "what may be sent out in this sandbox's life was sent" "ask for a higher uploadBudget",
    ResolverFailed N 502 "the host is allowed, and the DNS server outside gives no answer" "try again later",
    NameNotFound N 502 "the host is allowed, and no address of it was found" "check the name's spelling",
    NoUsableAddress S 502 "the host is allowed, and every address of it is one that is always denied" "the name's owner must publish a public address",
    TooManyAliases S 502 "the host's name is an alias of an alias, too many in a row" "the name's owner must shorten the chain",
    Unreachable N 502 "the host is allowed, and does not take connections" "try again later",
    TimedOut N 504 "the host is allowed, and did not answer in time" "try again later",
    AnswerMalformed S 502 "the host's answer can't be read, or could be read in two ways" "the host must send a plain HTTP/1.1 answer",
    CredentialElsewhere C 403 "what stands for a credential was sent to a host that it is not for" "spec.credentials of the AgentSandbox says which hosts get it",
    CredentialMisplaced S 403 "the host gets this credential, and not at this port, path, protocol or method" "spec.credentials of the AgentSandbox says where it is added",
    CredentialForeign C 403 "the request brings a credential of its own, and the rule lets through brokered ones alone" "leave it out, or send what stands for the credential; the gateway adds what spec.credentials names",
    CredentialDoubtful S 403 "the request brings what may be a credential of its own, and its rule lets through brokered ones" "leave it out; if it is none, the rule should not say requireBrokered",
    CredentialUnavailable N 503 "the credential of this request can't be had, or is not fit to be sent" "whoever made the sandbox sees to its Secret; try again later",
    AnswerEncoded S 502 "the host compressed its answer, or sent a part of it, which can't be searched for the credential" "the host must answer as Accept-Encoding: identity asks, and with all of it",
    NotRecorded N 503 "nothing may be done that is not on the record, and the audit trail can't be reached" "try again later; whoever owns the installation sees to its audit trail",
    Asked S 403 "no egress rule names this host, and whether it may be reached was asked" "whoever may approve sees it by glovebox approvals list",
    AskedInVain S 403 "no egress rule names this host, and a person said that it may not be reached" "the EgressApproval says who decided, and why",
    Suspected N 403 "the sandbox did what looks like an attack, and reaches nothing any more" "status.suspicion of the AgentSandbox says what it did; a new sandbox begins anew",
    Draining N 503 "this replica of the gateway stops" "connect again",
    Tripwire C 403 "the fence does not hold: this port is closed to every sandbox" "nothing to ask for",
}

/// Why, with which severity, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Policy says no.
    Policy(DenyReason),
    /// The gateway can't, or won't.
    Gateway(Trouble),
}

impl Reason {
    /// The spelling in metrics, records and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy(reason) => reason.as_str(),
            Self::Gateway(trouble) => trouble.as_str(),
        }
    }

    /// What it says about whoever caused it.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Policy(reason) => reason.severity(),
            Self::Gateway(trouble) => trouble.severity(),
        }
    }

    /// Whether honest clients do it all day, so that it is counted and no more.
    #[must_use]
    pub const fn is_noise(self) -> bool {
        matches!(self, Self::Policy(DenyReason::ClusterName | DenyReason::LocalName))
    }

    /// The status of an HTTP answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Policy(DenyReason::InvalidHost) => 400,
            Self::Policy(_) => 403,
            Self::Gateway(trouble) => trouble.status(),
        }
    }

    /// In plain words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Policy(reason) => reason.words(),
            Self::Gateway(trouble) => trouble.words(),
        }
    }

    /// What would have to change, and who can.
    #[must_use]
    pub const fn how_to_ask(self) -> &'static str {
        match self {
            Self::Policy(reason) => reason.how_to_ask(),
            Self::Gateway(trouble) => trouble.how_to_ask(),
        }
    }
}

impl From<Trouble> for Reason {
    fn from(trouble: Trouble) -> Self {
        Self::Gateway(trouble)
    }
}

impl From<HelloError> for Trouble {
    fn from(error: HelloError) -> Self {
        match error {
            HelloError::NotTls => Self::NotTls,
            HelloError::Malformed | HelloError::TooLong => Self::HelloMalformed,
        }
    }
}

impl From<HeadError> for Trouble {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::Framing | HeadError::Folded | HeadError::LineEnd => Self::HeadAmbiguous,
            HeadError::Control => Self::HeadControl,
            _ => Self::HeadMalformed,
        }
    }
}

impl From<framing::Malformed> for Trouble {
    fn from(_: framing::Malformed) -> Self {
        Self::HeadAmbiguous
    }
}

/// The spelling of a severity.
#[must_use]
pub const fn severity_str(severity: Severity) -> &'static str {
    match severity {
        Severity::N => "N",
        Severity::S => "S",
        Severity::C => "C",
    }
}

/// Most bytes of a host in a record.
pub const MOST_HOST: usize = 128;

/// One refusal, as it is recorded and said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The host as it was asked for: printable and capped, whatever came.
    pub host: String,
    /// The port; 0 if none was said.
    pub port: u16,
    /// The rule that came closest.
    pub rule: Option<Arc<str>>,
    /// The EgressPolicy that the rule is in.
    pub policy: Option<Arc<str>>,
    /// What the class says of its denial.
    pub words: Option<Arc<str>>,
}

impl Refusal {
    /// About a host of which only bytes are known.
    #[must_use]
    pub fn raw(reason: impl Into<Reason>, host: &[u8], port: u16) -> Self {
        Self { reason: reason.into(), host: escape(host), port, rule: None, policy: None, words: None }
    }

    /// About a destination.
    #[must_use]
    pub fn about(reason: impl Into<Reason>, asked: &Asked) -> Self {
        Self::raw(reason, asked.destination.to_string().as_bytes(), asked.port)
    }

    /// A verdict on a connection.
    #[must_use]
    pub fn denied(denial: &Denial<'_>, asked: &Asked) -> Self {
        Self::about(denial.reason, asked).by(denial)
    }

    /// With what a verdict says besides its reason.
    #[must_use]
    pub fn by(self, denial: &Denial<'_>) -> Self {
        Self {
            rule: denial.rule.map(Into::into),
            policy: denial.policy.map(Into::into),
            words: denial.words.map(Into::into),
            ..self
        }
    }
}

impl From<DenyReason> for Reason {
    fn from(reason: DenyReason) -> Self {
        Self::Policy(reason)
    }
}

/// Printable ASCII as it is, the rest as `\xNN`, capped.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().min(MOST_HOST));
    for byte in bytes {
        if out.len() + 5 > MOST_HOST {
            out.push('~');
            break;
        }
        match byte {
            b'\\' | b'"' => out.extend(['\\', char::from(*byte)]),
            b'!'..=b'~' => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_recorded_is_raw_or_long() {
        let all: Vec<u8> = (0..=255).collect();
        for chunk in all.chunks(16) {
            let text = escape(chunk);
            assert!(text.len() <= MOST_HOST && text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        }
        assert!(escape(&[0; 10_000]).len() <= MOST_HOST);
        assert_eq!(escape(b"a.example\n"), "a.example\\x0a");
    }

    #[test]
    fn every_trouble_says_what_to_do() {
        for trouble in Trouble::ALL {
            let reason = Reason::from(*trouble);
            assert!(!reason.how_to_ask().is_empty() && reason.words().len() < 100, "{trouble:?}");
            assert!((400..600).contains(&reason.status()));
        }
    }
}
