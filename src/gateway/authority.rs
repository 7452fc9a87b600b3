//! `host:port` of a CONNECT target, a URI or a Host field. The host itself is [`crate::policy`]'s to read.

use super::{
    head::{Request, Target},
    reason::{Reason, Trouble},
};
use crate::policy::{DenyReason, Destination};

/// Reads it; the port may be missing.
///
/// # Errors
/// When host or port is none.
pub(super) fn parse(text: &str) -> Result<(Destination, Option<u16>), Reason> {
    let end = if text.starts_with('[') {
        text.find(']').map_or(text.len(), |at| at + 1)
    } else {
        text.find(':').unwrap_or(text.len())
    };
    let (host, rest) = text.split_at_checked(end).ok_or(Reason::Policy(DenyReason::InvalidHost))?;
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => None,
        None => return Err(DenyReason::InvalidHost.into()),
        Some(digits) => Some(port(digits).ok_or(Reason::Gateway(Trouble::PortUnclear))?),
    };
    let host = Destination::parse(host.as_bytes()).map_err(DenyReason::from)?;
    Ok((host, port))
}

fn port(digits: &str) -> Option<u16> {
    let plain = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain && !digits.starts_with('0'))
}

/// Where a request goes: its Host field and, if it has one, its URI name the same.
///
/// # Errors
/// When they don't, or name nothing.
pub(super) fn of(request: &Request, default_port: u16) -> Result<(Destination, u16), Reason> {
    let whole = |text: &str| parse(text).map(|(host, port)| (host, port.unwrap_or(default_port)));
    let host = whole(request.host.as_deref().unwrap_or_default())?;
    match &request.target {
        Target::Absolute { authority, .. } if whole(authority)? != host => {
            Err(Trouble::AuthorityMismatch.into())
        }
        _ => Ok(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_hosts_and_ports_and_nothing_else() {
        let read = |text: &str| parse(text).map(|(host, port)| (host.to_string(), port));
        assert_eq!(read("X.example:443"), Ok(("x.example".into(), Some(443))));
        assert_eq!(read("x.example."), Ok(("x.example".into(), None)));
        assert_eq!(read("[2001:db8::1]:443"), Ok(("[2001:db8::1]".into(), Some(443))));
        assert_eq!(read("192.0.2.1:1"), Ok(("192.0.2.1".into(), Some(1))));
        for text in [
            "",
            ":443",
            "x.example:",
            "x.example:0",
            "x.example:0443",
            "x.example:+443",
            "x.example:65536",
            "x.example:443:443",
            "u@x.example:443",
            "u:p@x.example",
            "x.example:443/",
            "[::1",
            "[::1]443",
            "[x]:1",
            "2001:db8::1:443",
            "x.example:4 43",
            "x%2eexample:443",
            "x.example\\@y.example",
            "x.example:\u{661}",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
