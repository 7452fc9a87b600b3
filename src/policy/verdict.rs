//! What a decision says: who allowed it, or why not, in words that whoever meets the refusal can act on.

use std::fmt;

use super::{host::HostError, table::Rule};

/// How much a refusal says about whoever caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Noise: honest clients do it all day.
    N,
    /// Suspicious.
    S,
    /// No honest client does it.
    C,
}

macro_rules! reasons {
    ($($name:ident $severity:ident $text:literal $ask:ident,)+) => {
        /// Why something was refused. Closed: it labels metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DenyReason { $(#[doc = $text] $name,)+ }

        impl DenyReason {
            /// Every reason, for tests, metrics and reference documents.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The spelling in metrics, records and answers.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// What it says about whoever caused it.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)+ }
            }

            /// In plain words.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// What would have to change, and who can.
            #[must_use]
            pub const fn how_to_ask(self) -> &'static str {
                match self { $(Self::$name => $ask,)+ }
            }
        }
    };
}

const RULE: &str =
    "add the host and port to spec.egress.allow of the AgentSandbox, or to an EgressPolicy that it names";
const NEVER: &str = "this can't be allowed by any rule";
const SPELLING: &str = "spell the host as in DNS: letters, digits, '-', '_' and '.'";
const BY_NAME: &str = "use the host's name; a rule with cidrs opens addresses, past the gateway";
const CLASS: &str =
    "whoever owns the SandboxClass can name the range in spec.egress.ceiling.cidrs, together with the hosts";
const DENIAL: &str = "whoever owns the SandboxClass denies it in spec.egress.deny";
const PROTOCOL: &str = "set the rule's protocol to what is spoken: TLS, HTTPS, HTTP or TCP";
const OPENER: &str = "this installation's gateway has no authority to open TLS with: whoever installed it can set gateway.ca in the chart; with protocol TLS the rule needs none, and sees no requests";
const REQUEST: &str = "add the method and path to the rule's http.methods and http.paths";
const PATH: &str = "write the path plainly: no //, no . or .. segment, no encoded / or \\";
const RENEW: &str = "set the rule's expiresAt to a later time";

reasons! {
    NoRule S "no egress rule names this host" RULE,
    PortNotAllowed S "an egress rule names this host, but not this port" RULE,
    RuleExpired N "the egress rule for this host has expired" RENEW,
    ProtocolMismatch S "the egress rule for this host allows another protocol than the one that is spoken" PROTOCOL,
    MustBeOpened S "the egress rule for this host lets requests through one by one, so that TLS must be opened by the gateway" OPENER,
    RequestNotAllowed S "the egress rule for this host does not allow this method and path" REQUEST,
    AmbiguousPath S "the path could be read in two ways" PATH,
    AddressLiteral S "an address was given instead of a name, and no rule opens it" BY_NAME,
    InvalidHost C "the host is not spelled as a name" SPELLING,
    NumericHost S "the host is a number that could be read as an address" BY_NAME,
    DeniedByClass S "the sandbox's class denies this host" DENIAL,
    DeniedPort S "this port is always denied" NEVER,
    MetadataAddress C "metadata and link-local addresses are always denied" NEVER,
    MetadataName C "names of metadata services are always denied" NEVER,
    LocalAddress C "addresses of this host, multicast and reserved ones are always denied" NEVER,
    EmbeddedAddress C "IPv6 addresses that carry an IPv4 address are always denied" NEVER,
    ClusterAddress C "the address is one of the cluster's own" CLASS,
    PrivateAddress S "the address is a private one" CLASS,
    LocalName N "names of this host and of local networks are always denied" NEVER,
    ClusterName N "names of the cluster's services are always denied" NEVER,
    DnsOverHttps S "public DNS resolvers are always denied: names are asked of the gateway" NEVER,
    EchPublicName S "the public name of encrypted client hellos is always denied: it hides the real host" NEVER,
}

impl fmt::Display for DenyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl From<HostError> for DenyReason {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Numeric => Self::NumericHost,
            _ => Self::InvalidHost,
        }
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial<'p> {
    /// Why.
    pub reason: DenyReason,
    /// The rule that came closest, if any.
    pub rule: Option<&'p str>,
    /// The EgressPolicy that the rule is in; `None` for a sandbox's own.
    pub policy: Option<&'p str>,
    /// What the class says of its denial.
    pub words: Option<&'p str>,
}

impl<'p> Denial<'p> {
    /// A refusal that no rule has to do with.
    #[must_use]
    pub const fn new(reason: DenyReason) -> Self {
        Self { reason, rule: None, policy: None, words: None }
    }

    /// A refusal that a rule has to do with.
    #[must_use]
    pub fn by(reason: DenyReason, rule: &'p Rule) -> Self {
        Self { reason, rule: Some(&rule.name), policy: rule.policy.as_deref(), words: None }
    }

    /// What would have to change, and who can.
    #[must_use]
    pub const fn how_to_ask(&self) -> &'static str {
        self.reason.how_to_ask()
    }
}

impl fmt::Display for Denial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        match (self.policy, self.rule) {
            (Some(policy), Some(rule)) => write!(f, " (rule {rule:?} of EgressPolicy {policy:?})")?,
            (None, Some(rule)) => write!(f, " (rule {rule:?})")?,
            (_, None) => {}
        }
        self.words.map_or(Ok(()), |words| write!(f, ": {words}"))
    }
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict<'p> {
    /// By this rule.
    Allow(&'p Rule),
    /// With the reason.
    Deny(Denial<'p>),
}

impl<'p> Verdict<'p> {
    /// The rule that allows it.
    #[must_use]
    pub const fn allowed(self) -> Option<&'p Rule> {
        match self {
            Self::Allow(rule) => Some(rule),
            Self::Deny(_) => None,
        }
    }

    /// The refusal.
    #[must_use]
    pub const fn denied(self) -> Option<Denial<'p>> {
        match self {
            Self::Allow(_) => None,
            Self::Deny(denial) => Some(denial),
        }
    }
}
