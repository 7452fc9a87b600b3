//! An answer as bytes (RFC 1035, 6891, 8914): the question again, and at most one record of each section.
//!
//! Reads nothing: the name in it was parsed before, and the rest is ours. By hand because a general encoder, which looks for
//! names to compress in each record, takes most of the time that a query takes.

use std::net::Ipv4Addr;

use hickory_proto::op::{Message, Query, ResponseCode};

use super::{BLOCKED, EDE, LARGE, MOST_TEXT, NEGATIVE_TTL, TTL};

const A: u16 = 1;
const SOA: u16 = 6;
const OPT: u16 = 41;
const INTERNET: u16 = 1;
/// The name of the question, which begins where the header ends.
const SAME_NAME: u16 = 0xc00c;
const ROOT: u8 = 0;
/// Serial, refresh, retry, expire, minimum. Of the root, since every name is below it.
const ZONE: [u32; 5] = [1, 3600, 600, 86400, NEGATIVE_TTL];

/// What is answered.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) code: ResponseCode,
    pub(super) authoritative: bool,
    pub(super) address: Option<Ipv4Addr>,
    /// Whether it says how long an answer without an address holds.
    pub(super) negative: bool,
    /// Why not, for whoever reads extended errors.
    pub(super) words: Option<String>,
}

impl Reply {
    /// The answer to a query that has this question. Extensions only if the query has them.
    pub(super) fn encode(&self, query: &Message, question: &Query) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let asked = &query.metadata;
        let code = u16::from(self.code);
        // Of its twelve bits the lower four are in the header, the rest in the extensions.
        let [[_, upper], [_, lower]] = [(code >> 4).to_be_bytes(), (code & 15).to_be_bytes()];
        let high = 0x80 | (u8::from(self.authoritative) << 2) | u8::from(asked.recursion_desired);
        let low = (u8::from(asked.checking_disabled) << 4) | lower;
        put(&mut out, asked.id);
        out.extend([high, low]);
        let extensions = query.edns.is_some();
        let counts = [true, self.address.is_some(), self.negative, extensions];
        for count in counts {
            put(&mut out, count.into());
        }
        name(&mut out, question);
        put(&mut out, question.query_type.into());
        put(&mut out, question.query_class.into());
        if let Some(address) = self.address {
            put(&mut out, SAME_NAME);
            put(&mut out, A);
            put(&mut out, INTERNET);
            out.extend(TTL.to_be_bytes());
            put(&mut out, 4);
            out.extend(address.octets());
        }
        if self.negative {
            out.push(ROOT);
            put(&mut out, SOA);
            put(&mut out, INTERNET);
            out.extend(NEGATIVE_TTL.to_be_bytes());
            put(&mut out, 22);
            out.extend([ROOT, ROOT]);
            out.extend(ZONE.into_iter().flat_map(u32::to_be_bytes));
        }
        if extensions {
            out.push(ROOT);
            put(&mut out, OPT);
            put(&mut out, LARGE);
            // Version 0, no flags.
            out.extend([upper, 0, 0, 0]);
            self.options(&mut out);
        }
        out
    }

    fn options(&self, out: &mut Vec<u8>) {
        let Some(words) = &self.words else { return put(out, 0) };
        let text = || words.bytes().filter(|byte| (b' '..=b'~').contains(byte)).take(MOST_TEXT);
        // Of the code and the text; the option has its number and this length in front.
        let length = text().fold(2, |length: u16, _| length + 1);
        put(out, length + 4);
        put(out, EDE);
        put(out, length);
        put(out, BLOCKED);
        out.extend(text());
    }
}

fn put(out: &mut Vec<u8>, number: u16) {
    out.extend(number.to_be_bytes());
}

/// As it came, in its own case: some resolvers check that.
fn name(out: &mut Vec<u8>, question: &Query) {
    for label in &question.name {
        // The parser took none that is longer than 63.
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend(label);
    }
    out.push(ROOT);
}
