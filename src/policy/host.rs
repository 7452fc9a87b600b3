//! The one host type. Whatever names a host (DNS, SNI, CONNECT, a URI, a Host header) is parsed here, once and strictly;
//! rules, resolver, logs and metrics use the value that comes out. Nothing else may read a host from bytes.

use std::{
    borrow::Borrow,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// RFC 1035: the longest name as text, without the trailing dot.
pub(super) const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host name: lower-case ASCII, without trailing dot, nothing that anybody could read as an address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(Arc<str>);

/// Why bytes name no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// There is nothing.
    Empty,
    /// A byte that no host name has.
    Byte(u8),
    /// Two dots in a row, or one in front.
    EmptyLabel,
    /// A label has more than 63 bytes.
    LabelTooLong,
    /// More than 253 bytes.
    TooLong,
    /// A label starts or ends with `-`.
    Hyphen,
    /// The last label is a number: some resolvers would read an address.
    Numeric,
    /// Brackets without an IPv6 address in them.
    Brackets,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the host is empty"),
            Self::Byte(byte) => {
                write!(
                    f,
                    "the host has byte 0x{byte:02x}; a name has letters, digits, '-', '_' and '.' alone"
                )
            }
            Self::EmptyLabel => {
                f.write_str("the host has an empty label: two dots in a row, or one in front")
            }
            Self::LabelTooLong => write!(f, "the host has a label of more than {MAX_LABEL} bytes"),
            Self::TooLong => write!(f, "the host has more than {MAX_NAME} bytes"),
            Self::Hyphen => f.write_str("the host has a label that starts or ends with '-'"),
            Self::Numeric => {
                f.write_str("the host's last label is a number, so that it may be read as an address")
            }
            Self::Brackets => {
                f.write_str("brackets hold an IPv6 address without zone, such as [2001:db8::1]")
            }
        }
    }
}

impl std::error::Error for HostError {}

impl Host {
    /// Reads a name.
    ///
    /// # Errors
    /// When it is anything but a host name in its plain form.
    pub fn parse(bytes: &[u8]) -> Result<Self, HostError> {
        let mut buffer = [0_u8; MAX_NAME];
        canonical(bytes, &mut buffer).map(|name| Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, then what is left of it without its first label, and so on: `a.b.c`, `b.c`, `c`.
    pub fn suffixes(&self) -> impl Iterator<Item = &str> {
        suffixes(&self.0)
    }
}

/// See [`Host::suffixes`].
pub(super) fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |rest| rest.split_once('.').map(|(_, rest)| rest))
}

/// Writes the canonical form into the buffer. Bytes are judged before anything else is done with them.
fn canonical<'b>(bytes: &[u8], buffer: &'b mut [u8; MAX_NAME]) -> Result<&'b str, HostError> {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if let Some(byte) = bytes.iter().find(|byte| !allowed(byte)) {
        return Err(HostError::Byte(*byte));
    }
    let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
    if bytes.is_empty() {
        return Err(HostError::Empty);
    }
    let name = buffer.get_mut(..bytes.len()).ok_or(HostError::TooLong)?;
    name.copy_from_slice(bytes);
    name.make_ascii_lowercase();
    let mut last: &[u8] = &[];
    for label in name.split(|byte| *byte == b'.') {
        match label {
            [] => return Err(HostError::EmptyLabel),
            [b'-', ..] | [.., b'-'] => return Err(HostError::Hyphen),
            _ if label.len() > MAX_LABEL => return Err(HostError::LabelTooLong),
            _ => last = label,
        }
    }
    if is_number(last) {
        return Err(HostError::Numeric);
    }
    // Only ASCII is left; an error can't happen and would be a refusal.
    std::str::from_utf8(name).map_err(|_| HostError::Empty)
}

/// As the URL standard's "ends in a number": `1`, `0x7f`, `0x`, and octal as the digits that it is.
fn is_number(label: &[u8]) -> bool {
    let hex = label.strip_prefix(b"0x").is_some_and(|rest| rest.iter().all(u8::is_ascii_hexdigit));
    hex || label.iter().all(u8::is_ascii_digit)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// So that a map of hosts is asked for a part of a name without making one.
impl Borrow<str> for Host {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text.as_bytes())
    }
}

/// Where somebody wants to go: a name, or an address spelled in full.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A name.
    Name(Host),
    /// An address. Only a rule with address ranges can match it.
    Address(IpAddr),
}

impl Destination {
    /// Reads the host of a CONNECT target, a URI or a Host header, its port already taken off: a name, `192.0.2.1`, or
    /// `[2001:db8::1]`.
    ///
    /// # Errors
    /// When it is neither a name nor an address in its plain form.
    pub fn parse(bytes: &[u8]) -> Result<Self, HostError> {
        if let Some(inner) = bytes.strip_prefix(b"[") {
            let inner = inner.strip_suffix(b"]").and_then(|inner| std::str::from_utf8(inner).ok());
            let address = inner.and_then(|inner| inner.parse::<Ipv6Addr>().ok());
            return address.map(|address| Self::Address(address.into())).ok_or(HostError::Brackets);
        }
        // Four decimal parts without leading zeros; every other spelling stays a number that nobody resolves.
        let v4 = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Ipv4Addr>().ok());
        match v4 {
            Some(address) => Ok(Self::Address(address.into())),
            None => Host::parse(bytes).map(Self::Name),
        }
    }

    /// The name, if it is one.
    #[must_use]
    pub const fn name(&self) -> Option<&Host> {
        match self {
            Self::Name(host) => Some(host),
            Self::Address(_) => None,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(host) => host.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl From<Host> for Destination {
    fn from(host: Host) -> Self {
        Self::Name(host)
    }
}

impl From<IpAddr> for Destination {
    fn from(address: IpAddr) -> Self {
        Self::Address(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_form_for_every_spelling() {
        for (text, want) in [
            ("API.Example.COM", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("_dmarc.example.com", "_dmarc.example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("localhost", "localhost"),
            ("1.2.3.com", "1.2.3.com"),
            ("0xyz", "0xyz"),
        ] {
            assert_eq!(Host::parse(text.as_bytes()).unwrap().as_str(), want);
        }
    }

    #[test]
    fn refuses_what_two_readers_read_differently() {
        use HostError::*;
        let long = "a".repeat(64);
        let longest = vec!["a".repeat(63); 4].join(".");
        for (text, want) in [
            ("", Empty),
            (".", Empty),
            ("..", EmptyLabel),
            ("a..b", EmptyLabel),
            (".a", EmptyLabel),
            ("a.com..", EmptyLabel),
            ("-a.com", Hyphen),
            ("a-.com", Hyphen),
            (&long, LabelTooLong),
            (&longest, TooLong),
            ("127.0.0.1", Numeric),
            ("0x7f.1", Numeric),
            ("127.1", Numeric),
            ("2130706433", Numeric),
            ("0x7f000001", Numeric),
            ("0X7F000001", Numeric),
            ("017700000001", Numeric),
            ("a.0x", Numeric),
            ("example.0x7F.", Numeric),
            ("1.2.3.4.", Numeric),
            ("evil.com\0.ok.com", Byte(0)),
            ("evil%2ecom", Byte(b'%')),
            ("a b", Byte(b' ')),
            ("a\r\nb", Byte(b'\r')),
            ("a.com:443", Byte(b':')),
            ("b\u{fc}cher.example", Byte(0xc3)),
            ("a\u{3002}com", Byte(0xe3)),
            ("*.example.com", Byte(b'*')),
        ] {
            assert_eq!(Host::parse(text.as_bytes()), Err(want), "{text:?}");
            assert!(Destination::parse(text.as_bytes()).is_err() || text == "127.0.0.1", "{text:?}");
        }
        assert_eq!(Host::parse(&longest.as_bytes()[..MAX_NAME]).unwrap().as_str().len(), MAX_NAME);
    }

    #[test]
    fn every_byte_in_every_position() {
        let host = b"a1-b.c_d.example";
        for at in 0..host.len() {
            for byte in 0..=u8::MAX {
                let mut bytes = *host;
                bytes[at] = byte;
                let fits = byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                match Host::parse(&bytes) {
                    Ok(host) => assert!(fits && host.as_str().bytes().all(|b| !b.is_ascii_uppercase())),
                    Err(HostError::Byte(found)) => assert!(!fits && found == byte),
                    Err(HostError::EmptyLabel) => assert_eq!(byte, b'.'),
                    Err(HostError::Hyphen) => assert!(byte == b'-' || byte == b'.'),
                    Err(error) => panic!("{at} {byte}: {error}"),
                }
            }
        }
    }

    #[test]
    fn addresses_are_told_from_names() {
        let address = |text: &str| Ok(Destination::Address(text.parse().unwrap()));
        assert_eq!(Destination::parse(b"192.0.2.1"), address("192.0.2.1"));
        assert_eq!(Destination::parse(b"[2001:DB8::1]"), address("2001:db8::1"));
        assert_eq!(Destination::parse(b"[::ffff:1.2.3.4]"), address("::ffff:1.2.3.4"));
        assert_eq!(Destination::parse(b"a.com."), Ok(Destination::Name("a.com".parse().unwrap())));
        for text in
            ["[::1", "::1", "[fe80::1%eth0]", "[1.2.3.4]", "[]", "[a.com]", "1.2.3.04", "1.2.3", "[::1]]"]
        {
            assert!(Destination::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(host) = Host::parse(&bytes) {
                prop_assert_eq!(Host::parse(host.as_str().as_bytes()).unwrap(), host.clone());
                prop_assert!(host.as_str().parse::<IpAddr>().is_err());
            }
            if let Ok(there) = Destination::parse(&bytes) {
                prop_assert_eq!(Destination::parse(there.to_string().as_bytes()).unwrap(), there);
            }
        }

        /// Names of the right bytes, checked label by label.
        #[test]
        fn reads_just_names(text in "[a-zA-Z0-9_.x-]{0,20}") {
            let plain = text.strip_suffix('.').unwrap_or(&text).to_ascii_lowercase();
            let good = |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
            let last = plain.rsplit('.').next().unwrap_or_default();
            let number = last.chars().all(|c| c.is_ascii_digit())
                || last.strip_prefix("0x").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_hexdigit()));
            prop_assert_eq!(Host::parse(text.as_bytes()).is_ok(), plain.split('.').all(good) && !number, "{}", text);
        }
    }
}
