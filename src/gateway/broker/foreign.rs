//! Credentials that a workload brings itself, as far as a request's head shows them: by the names of fields and of parts of the query.
//!
//! Hostile bytes. What is not found here may still be a credential, in a body or under a name of somebody's own: a rule that requires
//! brokered ones should name methods and paths, too.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;

use crate::gateway::head::Request;

/// What names of fields that carry credentials have in them, with `-` for `_`.
const FIELDS: [&str; 11] = [
    "authorization",
    "x-auth",
    "token",
    "api-key",
    "apikey",
    "access-key",
    "secret",
    "cookie",
    "credential",
    "password",
    "signature",
];
/// The same of parts of a query, in lower case and with `-` for `_`.
const PARTS: [&str; 12] = [
    "access-token",
    "auth-token",
    "bearer-token",
    "id-token",
    "private-token",
    "api-key",
    "apikey",
    "access-key",
    "accesskey",
    "secret",
    "credential",
    "password",
];
/// Names of parts of a query that are credentials if they are all of the name, or stand behind a `-`.
const WORDS: [&str; 6] = ["token", "key", "sig", "signature", "auth", "authorization"];

/// Whether two names of fields are one to some server.
pub(super) fn same_field(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(a, b)| plain(a) == plain(b))
}

const fn plain(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

fn plain_name(name: &str) -> String {
    name.bytes().map(|byte| char::from(plain(byte))).collect()
}

/// Whether a field's value holds a text, as it is or as a password of Basic.
pub(super) fn value_holds(value: &[u8], text: &str) -> bool {
    let holds = |bytes: &[u8]| memchr::memmem::find(bytes, text.as_bytes()).is_some();
    let basic = || {
        let (scheme, rest) = value.split_at_checked(6)?;
        let decoded = BASE64_STANDARD.decode(rest.trim_ascii()).ok()?;
        Some(scheme.eq_ignore_ascii_case(b"basic ") && holds(&decoded))
    };
    holds(value) || basic().unwrap_or_default()
}

/// Whether a request's head holds a text.
pub(super) fn holds(request: &Request, text: &str) -> bool {
    request.path().contains(text) || request.fields().any(|(_, value)| value_holds(value, text))
}

/// Whether it brings a credential that is none of those that these texts stand for.
pub(super) fn is_foreign(request: &Request, placeholders: &[&str]) -> bool {
    let ours = |value: &[u8]| placeholders.iter().any(|text| value_holds(value, text));
    let field = |(name, value): (&str, &[u8])| {
        let name = plain_name(name);
        FIELDS.iter().any(|part| name.contains(part)) && !value.is_empty() && !ours(value)
    };
    let query = request.path().split_once('?').map_or("", |(_, query)| query);
    let part = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let name: Vec<u8> = percent_decode_str(name).map(plain).collect();
        let name = String::from_utf8_lossy(&name);
        let word =
            |word: &&str| name.strip_suffix(*word).is_some_and(|rest| rest.is_empty() || rest.ends_with('-'));
        // Places in lists are called tokens, too.
        let place = ["page-token", "next-token", "continuation-token", "sync-token"].contains(&&*name);
        let is_one = PARTS.iter().any(|part| name.contains(part)) || WORDS.iter().any(|text| word(text));
        is_one && !place && !value.is_empty() && !ours(value.as_bytes())
    };
    request.fields().any(field) || query.split(['&', ';']).any(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "glovebox-placeholder-0123";

    fn request(target: &str, fields: &str) -> Request {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        Request::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn credentials_are_known_by_their_names() {
        let foreign = |target: &str, fields: &str| is_foreign(&request(target, fields), &[OURS]);
        for fields in [
            "Authorization: Bearer x\r\n",
            "authorization: x\r\n",
            "X-Api-Key: x\r\n",
            "x_api_key: x\r\n",
            "Cookie: a=b\r\n",
            "PRIVATE-TOKEN: x\r\n",
            "X-Amz-Security-Token: x\r\n",
            "X-Goog-Api-Key: x\r\n",
            "X-Auth: x\r\n",
            "Authorization: Basic dXNlcjp4\r\n",
        ] {
            assert!(foreign("/", fields), "{fields}");
        }
        for target in [
            "/?access_token=x",
            "/?a=b&api_key=x",
            "/?key=x",
            "/?X-Amz-Signature=x",
            "/?X-Amz-Credential=x",
            "/?sig=x",
            "/?a=b;token=x",
            "/?%6bey=x",
        ] {
            assert!(foreign(target, ""), "{target}");
        }
        for (target, fields) in [
            ("/", "Idempotency-Key: x\r\nAccept: */*\r\nUser-Agent: y\r\nSec-WebSocket-Key: z\r\n"),
            ("/token/key?page_token=x&max_tokens=5&q=key&monkey=1", ""),
            ("/?key=", "Authorization:\r\n"),
            ("/?key=glovebox-placeholder-0123", "Authorization: Bearer glovebox-placeholder-0123\r\n"),
            // x:glovebox-placeholder-0123
            ("/", "Authorization: Basic eDpnbG92ZWJveC1wbGFjZWhvbGRlci0wMTIz\r\n"),
        ] {
            assert!(!foreign(target, fields), "{target} {fields}");
        }
    }

    #[test]
    fn a_placeholder_is_found_wherever_it_stands() {
        assert!(holds(&request("/a/glovebox-placeholder-0123/b", ""), OURS));
        assert!(holds(&request("/", "X: aglovebox-placeholder-0123b\r\n"), OURS));
        assert!(holds(&request("/", "Authorization: basic eDpnbG92ZWJveC1wbGFjZWhvbGRlci0wMTIz\r\n"), OURS));
        assert!(!holds(&request("/glovebox-placeholder-", "X: y\r\n"), OURS));
    }

    #[test]
    fn names_that_some_servers_take_for_one_are_one() {
        assert!(same_field("X_Api_Key", "x-api-key") && !same_field("X-Api-Key", "X-Api-Ke"));
    }
}
