//! The forms in which a secret comes back by accident: as it is, in a URL, in JSON, and in base64 wherever it stands in what was encoded.

use base64::{
    Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_STANDARD_NO_PAD, prelude::BASE64_URL_SAFE_NO_PAD,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use zeroize::Zeroizing;

/// A part that is shorter is no secret of its own.
const LEAST: usize = 8;
/// What a URL leaves as it is: by RFC 3986, and by those who leave more.
const STRICT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const LOOSE: AsciiSet = STRICT.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');
const PATH: AsciiSet =
    LOOSE.remove(b'/').remove(b':').remove(b'@').remove(b'$').remove(b',').remove(b';').remove(b'=');

/// All forms of it, each once.
pub(super) fn of(secret: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms = Vec::new();
    add_all(&mut forms, secret);
    // User and password, as Basic has them.
    if let Ok(decoded) = BASE64_STANDARD.decode(secret) {
        let decoded = Zeroizing::new(decoded);
        if let Some(colon) = decoded.iter().position(|byte| *byte == b':') {
            add_all(&mut forms, &decoded);
            add_all(&mut forms, decoded.get(colon + 1..).unwrap_or_default());
        }
    }
    forms
}

fn add_all(forms: &mut Vec<Zeroizing<Vec<u8>>>, secret: &[u8]) {
    if secret.len() < LEAST {
        return;
    }
    let mut add = |form: Vec<u8>| {
        let form = Zeroizing::new(form);
        if form.len() >= LEAST && !forms.contains(&form) {
            forms.push(form);
        }
    };
    add(secret.to_vec());
    for set in [&STRICT, &LOOSE, &PATH, NON_ALPHANUMERIC] {
        let upper = percent_encode(secret, set).to_string();
        add(lower_hex(&upper).into_bytes());
        add(upper.replace("%20", "+").into_bytes());
        add(upper.into_bytes());
    }
    let quoted = Zeroizing::new(serde_json::to_string(&String::from_utf8_lossy(secret)).unwrap_or_default());
    let quoted = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    add(quoted.as_bytes().to_vec());
    add(quoted.replace('/', "\\/").into_bytes());
    add(quoted.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e").into_bytes());
    // In whole groups: what stands before it changes so many of the first letters, what stands behind it the last.
    for (before, changed) in [(0, 0), (1, 2), (2, 3)] {
        let mut padded = Zeroizing::new(vec![0; before]);
        padded.extend_from_slice(secret);
        let groups = padded.get(..padded.len() / 3 * 3).unwrap_or_default();
        for text in [BASE64_STANDARD_NO_PAD.encode(groups), BASE64_URL_SAFE_NO_PAD.encode(groups)] {
            add(text.into_bytes().split_off(changed));
        }
    }
}

/// Percent-encoding with small letters.
fn lower_hex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut left = 0;
    for c in text.chars() {
        if c == '%' {
            left = 2;
            out.push(c);
        } else if left > 0 {
            left -= 1;
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(secret: &str) -> Vec<String> {
        of(secret.as_bytes()).into_iter().map(|form| String::from_utf8(form.to_vec()).unwrap()).collect()
    }

    #[test]
    fn each_form_that_servers_write_is_known() {
        let all = forms("sk-a/b+c d\"(1)&e");
        for form in [
            "sk-a/b+c d\"(1)&e",
            "sk-a%2Fb%2Bc%20d%22%281%29%26e",
            "sk-a%2fb%2bc%20d%22%281%29%26e",
            "sk-a%2Fb%2Bc+d%22%281%29%26e",
            "sk-a%2Fb%2Bc%20d%22(1)%26e",
            "sk%2Da%2Fb%2Bc%20d%22%281%29%26e",
            "sk-a/b+c d\\\"(1)&e",
            "sk-a\\/b+c d\\\"(1)&e",
            "sk-a/b+c d\\\"(1)\\u0026e",
        ] {
            assert!(all.iter().any(|known| known == form), "{form} is not in {all:#?}");
        }
        assert_eq!(lower_hex("A%2FB%AB"), "A%2fB%ab");
    }

    #[test]
    fn base64_is_known_wherever_it_begins() {
        let secret = "sk-test-0123456789";
        let all = forms(secret);
        for before in ["", "a", "ab", "abc", "Bearer ", "user:"] {
            for after in ["", "x", "xy", "xyz"] {
                let text = BASE64_STANDARD_NO_PAD.encode(format!("{before}{secret}{after}"));
                assert!(all.iter().any(|form| text.contains(form.as_str())), "{before:?} {after:?}: {text}");
            }
        }
    }

    #[test]
    fn a_password_in_basic_is_one_of_its_own() {
        let all = forms(&BASE64_STANDARD.encode("user:correct horse"));
        assert!(all.iter().any(|form| form == "correct horse"), "{all:?}");
    }
}
