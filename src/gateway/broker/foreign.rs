//! Credentials that a workload brings itself, as far as a request's head shows them: by the names of fields and of parts of the query.
//!
//! Hostile bytes. What is not found here may still be a credential, in a body or under a name of somebody's own: a rule that requires
//! brokered ones should name methods and paths, too.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use percent_encoding::percent_decode_str;

use crate::gateway::head::Request;

/// What names of fields and of parts of a query that carry credentials have in them, without what separates their words.
const NAMES: [&str; 15] = [
    "authorization",
    "accesstoken",
    "authtoken",
    "bearertoken",
    "idtoken",
    "privatetoken",
    "securitytoken",
    "apikey",
    "accesskey",
    "subscriptionkey",
    "functionskey",
    "secret",
    "credential",
    "password",
    "signature",
];
/// Names that are credentials if they are all of it: of a part of a query, honest programs have them for other things, too.
const WORDS: [&str; 7] = ["key", "sig", "auth", "token", "jwt", "pwd", "sas"];
/// A field that is one if that is all of its name.
const FIELD: &str = "xauth";
/// A field whose name ends in this is one, unless it is for requests that are forged.
const TOKEN: &str = "token";
const FORGED: [&str; 2] = ["csrf", "xsrf"];
/// Where browsers put a credential in a WebSocket's request, which has no field for one.
const PROTOCOL: &str = "secwebsocketprotocol";

/// Base64, however it is padded.
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How sure it is that a request brings a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Foreign {
    /// By a name that honest programs have for other things, too.
    Perhaps,
    /// By a name that means nothing else.
    Surely,
}

/// Whether two names of fields are one to some server.
pub(super) fn same_field(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(a, b)| plain(a) == plain(b))
}

const fn plain(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

/// A name's letters and digits.
fn letters(name: impl Iterator<Item = u8>) -> String {
    name.filter(u8::is_ascii_alphanumeric).map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

/// What Basic has in it, however it is padded.
fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_at_checked(6)?;
    scheme.eq_ignore_ascii_case(b"basic ").then(|| FORGIVING.decode(rest.trim_ascii()).ok())?
}

/// Whether a field's value holds a text, as it is or as a password of Basic.
pub(super) fn value_holds(value: &[u8], text: &str) -> bool {
    let holds = |bytes: &[u8]| memchr::memmem::find(bytes, text.as_bytes()).is_some();
    holds(value) || basic(value).is_some_and(|decoded| holds(&decoded))
}

/// Whether a request's head holds a text.
pub(super) fn holds(request: &Request, text: &str) -> bool {
    let path = request.path();
    let decoded = || percent_decode_str(path).collect::<Vec<u8>>();
    path.contains(text)
        || value_holds(&decoded(), text)
        || request.fields().any(|(_, value)| value_holds(value, text))
}

/// Whether it brings a credential of its own. What is put into `replaced` never leaves; anywhere else only these texts themselves are
/// none.
pub(super) fn foreign(request: &Request, placeholders: &[&str], replaced: &[&str]) -> Option<Foreign> {
    let ours = |value: &[u8]| placeholders.iter().any(|text| value == text.as_bytes());
    let field = |(name, value): (&str, &[u8])| {
        let put = replaced.iter().any(|field| same_field(field, name));
        let harmless = value.is_empty() || ours(value);
        let stands = put && placeholders.iter().any(|text| value_holds(value, text));
        (!harmless && !stands).then(|| of_field(&letters(name.bytes()), value)).flatten()
    };
    let query = request.path().split_once('?').map_or("", |(_, query)| query);
    let part = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let harmless = value.is_empty() || ours(value.as_bytes());
        (!harmless).then(|| of_part(&letters(percent_decode_str(name)))).flatten()
    };
    request.fields().filter_map(field).chain(query.split(['&', ';']).filter_map(part)).max()
}

fn of_field(name: &str, value: &[u8]) -> Option<Foreign> {
    let has = |text: &str| NAMES.iter().any(|part| text.contains(part));
    let forged = FORGED.iter().any(|part| name.contains(part));
    if name == PROTOCOL {
        let value = letters(value.iter().copied());
        return (has(&value) || value.contains("bearer")).then_some(Foreign::Surely);
    }
    (has(name) || name == FIELD || (name.ends_with(TOKEN) && !forged)).then_some(Foreign::Surely)
}

fn of_part(name: &str) -> Option<Foreign> {
    if NAMES.iter().any(|part| name.ends_with(part)) {
        return Some(Foreign::Surely);
    }
    let perhaps = WORDS.contains(&name) || NAMES.iter().any(|part| name.contains(part));
    perhaps.then_some(Foreign::Perhaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "glovebox-placeholder-0123";

    fn request(target: &str, fields: &str) -> Request {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        Request::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn brings(target: &str, fields: &str) -> Option<Foreign> {
        foreign(&request(target, fields), &[OURS], &["Authorization"])
    }

    #[test]
    fn credentials_are_known_by_their_names() {
        for fields in [
            "Authorization: Bearer x\r\n",
            "authorization: x\r\n",
            "X-Api-Key: x\r\n",
            "x_api_key: x\r\n",
            "AccessKey: x\r\n",
            "PRIVATE-TOKEN: x\r\n",
            "X-Amz-Security-Token: x\r\n",
            "X-Goog-Api-Key: x\r\n",
            "Ocp-Apim-Subscription-Key: x\r\n",
            "X-Functions-Key: x\r\n",
            "X-Auth: x\r\n",
            "Authorization: Basic dXNlcjp4\r\n",
            "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.x\r\n",
            "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.x\r\n",
            // What stands for one is no cloak for another.
            "X-Api-Key: x glovebox-placeholder-0123\r\n",
        ] {
            assert_eq!(brings("/", fields), Some(Foreign::Surely), "{fields}");
        }
        for target in [
            "/?access_token=x",
            "/?accessToken=x",
            "/?auth[token]=x",
            "/?auth%5Btoken%5D=x",
            "/?access.token=x",
            "/?a=b&api_key=x",
            "/?X-Amz-Signature=x",
            "/?X-Amz-Credential=x",
            "/?a=b;id_token=x",
            "/?api%5fkey=x",
            "/?api_key=xglovebox-placeholder-0123",
        ] {
            assert_eq!(brings(target, ""), Some(Foreign::Surely), "{target}");
        }
        for target in ["/?key=x", "/?%6bey=x", "/?sig=x", "/?token=x", "/?with_credentials=true"] {
            assert_eq!(brings(target, ""), Some(Foreign::Perhaps), "{target}");
        }
    }

    #[test]
    fn what_honest_programs_send_is_none() {
        for (target, fields) in [
            ("/", "Idempotency-Key: x\r\nAccept: */*\r\nUser-Agent: y\r\nSec-WebSocket-Key: z\r\n"),
            ("/", "X-CSRF-Token: x\r\nSec-WebSocket-Protocol: graphql-ws\r\n"),
            (
                "/token/key?page_token=x&max_tokens=5&q=key&monkey=1&start_key=a&sort_key=b&max_authors=5",
                "X-Author: x\r\n",
            ),
            ("/?key=", "Authorization:\r\n"),
            ("/?key=glovebox-placeholder-0123", "Authorization: Bearer glovebox-placeholder-0123\r\n"),
            // x:glovebox-placeholder-0123
            ("/", "Authorization: Basic eDpnbG92ZWJveC1wbGFjZWhvbGRlci0wMTIz\r\n"),
            ("/", "X-Api-Key: glovebox-placeholder-0123\r\n"),
        ] {
            assert_eq!(brings(target, fields), None, "{target} {fields}");
        }
    }

    #[test]
    fn a_placeholder_is_found_wherever_it_stands() {
        for (target, fields) in [
            ("/a/glovebox-placeholder-0123/b", ""),
            ("/a/%67lovebox-placeholder%2D0123/b", ""),
            ("/", "X: aglovebox-placeholder-0123b\r\n"),
            ("/", "Authorization: basic eDpnbG92ZWJveC1wbGFjZWhvbGRlci0wMTIz\r\n"),
            ("/", "Authorization: Basic eHk6Z2xvdmVib3gtcGxhY2Vob2xkZXItMDEyMw\r\n"),
        ] {
            assert!(holds(&request(target, fields), OURS), "{target} {fields}");
        }
        assert!(!holds(&request("/glovebox-placeholder-", "X: y\r\n"), OURS));
    }

    #[test]
    fn names_that_some_servers_take_for_one_are_one() {
        assert!(same_field("X_Api_Key", "x-api-key") && !same_field("X-Api-Key", "X-Api-Ke"));
    }
}
