//! DNS as bytes in, bytes out: what is asked, and how it is answered. It steers; it never asks anybody else.
//!
//! Hostile bytes. Every name that is not known gets the same shape of answer, with words for whoever reads them.

mod encode;

use std::net::Ipv4Addr;

use encode::Reply;
use hickory_proto::{
    op::{Message, Query, ResponseCode},
    rr::{DNSClass, Name, RecordType},
};

use crate::policy::{Host, HostError};

/// How long an answer holds. Short: a revoked name should be forgotten soon.
const TTL: u32 = 10;
/// How long a refusal holds. Shorter: a granted name should work soon.
const NEGATIVE_TTL: u32 = 5;
/// EDE of RFC 8914: blocked by whoever runs the server.
const BLOCKED: u16 = 15;
const EDE: u16 = 15;
/// Most bytes of its text, so that a refusal fits into any packet.
const MOST_TEXT: usize = 160;
const HEADER: usize = 12;
/// Without EDNS, and never less with it.
const SMALL: usize = 512;
/// What leaves by UDP at most: never a fragment.
const LARGE: u16 = 1232;

/// What is known of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It leads here.
    Here(Ipv4Addr),
    /// It is refused, in these words.
    Denied(String),
    /// Whoever asks is nobody, or asks too much.
    Refused,
}

/// The name that was asked for; with an error the bytes that are none.
pub type Named = Result<Host, (HostError, Vec<u8>)>;

/// How it was answered. Closed: it labels metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An address.
    Address,
    /// There is such a name, and nothing of this type.
    NoData,
    /// Policy knows no such name.
    Denied,
    /// Unknown source, too many, or a type or class that is not served.
    Refused,
    /// Malformed.
    Malformed,
    /// Not a query that is served.
    NotImplemented,
}

impl Outcome {
    /// The spelling in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::NoData => "nodata",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
            Self::NotImplemented => "notimp",
        }
    }
}

/// Answers a packet. `most` is what the transport carries. `known` is asked at most once, and only for a well-formed question
/// of a type that is served. None for what must not be answered: what is no query, or too short to be one.
pub fn answer(packet: &[u8], most: usize, known: impl FnOnce(Named) -> Known) -> Option<(Vec<u8>, Outcome)> {
    let header = packet.first_chunk::<HEADER>()?;
    let [_, _, flags, _, questions @ ..] = *header;
    if flags & 0x80 != 0 {
        return None;
    }
    if (flags >> 3) & 15 != 0 {
        return Some((bare(header, 4), Outcome::NotImplemented));
    }
    let malformed = || Some((bare(header, 1), Outcome::Malformed));
    if u16::from_be_bytes([questions[0], questions[1]]) != 1 {
        return malformed();
    }
    let Ok(query) = Message::from_vec(packet) else { return malformed() };
    if !(query.answers.is_empty() && query.authorities.is_empty()) {
        return malformed();
    }
    let (question, reply, outcome) = reply(&query, known)?;
    let room =
        query.edns.as_ref().map_or(SMALL, |edns| usize::from(edns.max_payload()).clamp(SMALL, LARGE.into()));
    let room = if most > LARGE.into() { most } else { room };
    let bytes = reply.encode(&query, question);
    // It can't be longer with what is answered here; if it were, TCP has room.
    Some((if bytes.len() <= room { bytes } else { truncated(header) }, outcome))
}

/// A header without a question, for what could not be read.
fn bare(query: &[u8; HEADER], code: u8) -> Vec<u8> {
    let [id_high, id_low, flags, ..] = *query;
    let mut out = vec![id_high, id_low, 0x80 | (flags & 0x79), code];
    out.resize(HEADER, 0);
    out
}

fn truncated(query: &[u8; HEADER]) -> Vec<u8> {
    let mut out = bare(query, 0);
    if let Some(flags) = out.get_mut(2) {
        *flags |= 2;
    }
    out
}

fn reply(query: &Message, known: impl FnOnce(Named) -> Known) -> Option<(&Query, Reply, Outcome)> {
    let question = query.queries.first()?;
    if query.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        let reply = Reply { code: ResponseCode::BADVERS, ..Reply::default() };
        return Some((question, reply, Outcome::Malformed));
    }
    let served = matches!(
        question.query_type,
        RecordType::A | RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB
    );
    let known = if served && question.query_class == DNSClass::IN {
        known(host(&question.name))
    } else {
        Known::Refused
    };
    // Without its word to be the authority, some resolvers take an empty answer for a referral to nowhere.
    let authority = Reply { authoritative: true, ..Reply::default() };
    let (reply, outcome) = match known {
        Known::Refused => (Reply { code: ResponseCode::Refused, ..Reply::default() }, Outcome::Refused),
        Known::Here(address) if question.query_type == RecordType::A => {
            (Reply { address: Some(address), ..authority }, Outcome::Address)
        }
        Known::Here(_) => (Reply { negative: true, ..authority }, Outcome::NoData),
        Known::Denied(words) => {
            let code = ResponseCode::NXDomain;
            (Reply { code, negative: true, words: Some(words), ..authority }, Outcome::Denied)
        }
    };
    Some((question, reply, outcome))
}

/// A dot within a label would look like the end of one.
fn host(name: &Name) -> Named {
    let mut text = Vec::with_capacity(256);
    for label in name {
        if label.contains(&b'.') {
            return Err((HostError::EmptyLabel, label.to_vec()));
        }
        if !text.is_empty() {
            text.push(b'.');
        }
        text.extend_from_slice(label);
    }
    Host::parse(&text).map_err(|error| (error, text))
}

#[cfg(test)]
mod tests;
