//! The fields of a head, sorted by what they are for: one host, one length, what ends here and what is passed on.
//!
//! Hostile bytes. A field that two readers could read in two ways is an error, never a guess.

use super::{Framing, HeadError, Version};

pub(super) enum Hosts {
    None,
    One(String),
    Many,
}

/// A head's fields, sorted by what they are for.
pub(super) struct Fields {
    pub(super) host: Hosts,
    pub(super) length: Option<u64>,
    chunked: bool,
    pub(super) websocket: bool,
    pub(super) kept: Vec<(String, Vec<u8>)>,
}

impl Fields {
    pub(super) fn read(headers: &[httparse::Header<'_>]) -> Result<Self, HeadError> {
        let (length, kept) = (None, Vec::new());
        let mut fields = Self { host: Hosts::None, length, chunked: false, websocket: false, kept };
        let mut nominated: Vec<String> = Vec::new();
        for header in headers {
            let name = header.name.to_ascii_lowercase();
            match name.as_str() {
                "host" => {
                    let host = std::str::from_utf8(header.value).map_err(|_| HeadError::Host)?;
                    fields.host = match fields.host {
                        Hosts::None => Hosts::One(host.into()),
                        _ => Hosts::Many,
                    };
                }
                "content-length" if fields.length.is_none() => fields.length = Some(number(header.value)?),
                "transfer-encoding" if !fields.chunked && header.value.eq_ignore_ascii_case(b"chunked") => {
                    fields.chunked = true;
                }
                // Some servers read `_` as `-`.
                _ if matches!(&*name.replace('_', "-"), "content-length" | "transfer-encoding") => {
                    return Err(HeadError::Framing);
                }
                "connection" => {
                    let text = std::str::from_utf8(header.value).map_err(|_| HeadError::Byte)?;
                    nominated.extend(text.split(',').map(|token| token.trim().to_ascii_lowercase()));
                }
                "upgrade" => fields.websocket = header.value.eq_ignore_ascii_case(b"websocket"),
                _ if is_between_hops(&name) => {}
                _ => fields.kept.push((header.name.into(), header.value.into())),
            }
        }
        fields.websocket &= nominated.iter().any(|name| name == "upgrade");
        fields.kept.retain(|(name, _)| !nominated.contains(&name.to_ascii_lowercase()));
        Ok(fields)
    }

    pub(super) fn framing(&self, version: Version) -> Result<Option<Framing>, HeadError> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(HeadError::Framing),
            (true, None) if version == Version::Http10 => Err(HeadError::Framing),
            (true, None) => Ok(Some(Framing::Chunked)),
            (false, length) => Ok(length.map(Framing::Length)),
        }
    }
}

/// Digits and nothing else: no sign, no list, no second opinion.
fn number(text: &[u8]) -> Result<u64, HeadError> {
    let digits = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits).ok_or(HeadError::Framing)?;
    text.parse().map_err(|_| HeadError::Framing)
}

/// Fields that end here: RFC 9110 section 7.6.1, what a proxy says of itself or of whom it serves, and what would have a server answer
/// another request than was judged.
fn is_between_hops(name: &str) -> bool {
    let name = &*name.replace('_', "-");
    let ends = ["keep-alive", "te", "trailer", "http2-settings", "forwarded", "via", "x-real-ip"];
    let other =
        ["x-original-url", "x-rewrite-url", "x-http-method", "x-http-method-override", "x-method-override"];
    ends.contains(&name)
        || other.contains(&name)
        || name.starts_with("proxy-")
        || name.starts_with("x-forwarded-")
}
