//! Takes a secret out of what a server answers, in the forms in which one is given back by accident, however the answer is split.
//!
//! Each byte becomes one asterisk, so that lengths stay. A server that means to give its client the secret can always do so, in a form
//! that nobody knows: the hosts of a credential must be ones to trust with it.

use base64::{
    Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_STANDARD_NO_PAD, prelude::BASE64_URL_SAFE_NO_PAD,
};
use memchr::memmem;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use zeroize::Zeroizing;

use super::Secret;

/// What is written in place of each byte.
const IN_PLACE: u8 = b'*';
/// A part that is shorter is no secret of its own.
const LEAST_PART: usize = 8;

/// Takes secrets out of one answer.
pub struct Redactor {
    forms: Vec<Zeroizing<Vec<u8>>>,
    /// What may be the beginning of a form, with what of it was part of one already.
    held: Zeroizing<Vec<u8>>,
    covered: Vec<bool>,
}

impl Redactor {
    /// For the secrets that went out.
    #[must_use]
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        let mut forms = Vec::new();
        for secret in secrets {
            add_forms(&mut forms, secret.bytes());
            // User and password, as Basic has them.
            let Ok(decoded) = BASE64_STANDARD.decode(secret.bytes()) else { continue };
            let decoded = Zeroizing::new(decoded);
            if let Some(colon) = decoded.iter().position(|byte| *byte == b':') {
                add_forms(&mut forms, &decoded);
                add_forms(&mut forms, decoded.get(colon + 1..).unwrap_or_default());
            }
        }
        Self { forms, held: Zeroizing::default(), covered: Vec::new() }
    }

    /// Takes it out of a text that is whole. Nothing may be held.
    pub fn whole(&mut self, text: &mut Vec<u8>) {
        let mut clean = Vec::with_capacity(text.len());
        self.push(text, &mut clean);
        self.finish(&mut clean);
        *text = clean;
    }

    /// Takes it out of what came, and appends what is known to be clean.
    pub fn push(&mut self, more: &[u8], clean: &mut Vec<u8>) {
        self.held.extend_from_slice(more);
        self.covered.resize(self.held.len(), false);
        for form in &self.forms {
            let finder = memmem::Finder::new(form.as_slice());
            let mut from = 0;
            // Those that overlap, too.
            while let Some(at) = self.held.get(from..).and_then(|rest| finder.find(rest)) {
                let begin = from + at;
                self.covered.iter_mut().skip(begin).take(form.len()).for_each(|covered| *covered = true);
                from = begin + 1;
            }
        }
        let beginnings = self.forms.iter().map(|form| beginning(&self.held, form));
        let kept = beginnings.max().unwrap_or_default();
        self.give(self.held.len() - kept, clean);
    }

    /// There is no more: what was held can't become a form.
    pub fn finish(&mut self, clean: &mut Vec<u8>) {
        self.give(self.held.len(), clean);
    }

    fn give(&mut self, count: usize, clean: &mut Vec<u8>) {
        let covered = self.covered.drain(..count);
        let given = self.held.iter().zip(covered);
        clean.extend(given.map(|(byte, covered)| if covered { IN_PLACE } else { *byte }));
        let left = Zeroizing::new(self.held.get(count..).unwrap_or_default().to_vec());
        self.held = left;
    }
}

/// How much of the end of `text` is the beginning of `form`, and not all of it.
fn beginning(text: &[u8], form: &[u8]) -> usize {
    let most = form.len().saturating_sub(1).min(text.len());
    (1..=most)
        .rev()
        .find(|length| text.ends_with(form.get(..*length).unwrap_or_default()))
        .unwrap_or_default()
}

/// A secret as it is, in a URL, in JSON and in base64.
fn add_forms(forms: &mut Vec<Zeroizing<Vec<u8>>>, secret: &[u8]) {
    if secret.len() < LEAST_PART {
        return;
    }
    let mut add = |form: Vec<u8>| {
        let form = Zeroizing::new(form);
        if form.len() >= LEAST_PART && !forms.contains(&form) {
            forms.push(form);
        }
    };
    add(secret.to_vec());
    add(percent_encode(secret, NON_ALPHANUMERIC).to_string().into_bytes());
    let quoted = serde_json::to_string(&String::from_utf8_lossy(secret)).unwrap_or_default();
    add(quoted.trim_matches('"').as_bytes().to_vec());
    // In whole groups: what stands behind it changes the last.
    let groups = secret.get(..secret.len() / 3 * 3).unwrap_or_default();
    add(BASE64_STANDARD_NO_PAD.encode(groups).into_bytes());
    add(BASE64_URL_SAFE_NO_PAD.encode(groups).into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &[u8] = b"sk-abcabc-12/3\"4";

    fn redacted(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut redactor = Redactor::new([&Secret::new(secret.to_vec()).unwrap()]);
        let mut clean = Vec::new();
        for part in parts {
            redactor.push(part, &mut clean);
        }
        redactor.finish(&mut clean);
        clean
    }

    #[test]
    fn each_form_is_taken_out_and_nothing_else() {
        let text = String::from_utf8_lossy(SECRET).into_owned();
        let stars = |count: usize| "*".repeat(count);
        for form in [
            text.clone(),
            "sk%2Dabcabc%2D12%2F3%224".into(),
            "sk-abcabc-12/3\\\"4".into(),
            BASE64_STANDARD_NO_PAD.encode(&SECRET[..15]),
        ] {
            let said = redacted(SECRET, &[format!("a {form} b {form}").as_bytes()]);
            let length = form.len();
            assert_eq!(
                String::from_utf8(said).unwrap(),
                format!("a {} b {}", stars(length), stars(length)),
                "{form}"
            );
        }
        let innocent = b"sk-abcabc-12/3 sk-abcabc sk-abcabc-12/3\"";
        assert_eq!(redacted(SECRET, &[innocent]), innocent);
        let basic = BASE64_STANDARD.encode("user:correct horse");
        assert_eq!(redacted(basic.as_bytes(), &[b"is it correct horse?"]), b"is it *************?");
    }

    #[test]
    fn what_overlaps_is_taken_out_as_well() {
        assert_eq!(redacted(b"abababab", &[b"xababababababx"]), b"x************x");
        assert_eq!(redacted(b"abababab", &[b"xabab", b"abab", b"ababx"]), b"x************x");
    }

    #[test]
    fn nothing_is_held_that_can_not_become_the_secret() {
        let mut redactor = Redactor::new([&Secret::new(SECRET.to_vec()).unwrap()]);
        let mut clean = Vec::new();
        redactor.push(b"data: hello\n\n", &mut clean);
        assert_eq!(clean, b"data: hello\n\n");
        redactor.push(b"sk-abc", &mut clean);
        assert_eq!(clean, b"data: hello\n\n");
        redactor.push(b"d", &mut clean);
        assert_eq!(clean, b"data: hello\n\nsk-abcd");
    }

    proptest! {
        /// However it is split, what comes out is as long, and is the same but for the places of the secret.
        #[test]
        fn splits_hide_nothing(
            parts in prop::collection::vec(prop_oneof![
                Just(b"abcabcab".to_vec()), Just(b"abc".to_vec()), prop::collection::vec(prop::sample::select(&b"abcx"[..]), 0..9)
            ], 0..12),
            cut in 1..9_usize,
        ) {
            let secret = b"abcabcab";
            let whole: Vec<u8> = parts.concat();
            let mut expected = whole.clone();
            for begin in 0..whole.len() {
                if whole[begin..].starts_with(secret) {
                    expected[begin..begin + secret.len()].fill(b'*');
                }
            }
            let pieces: Vec<&[u8]> = whole.chunks(cut).collect();
            prop_assert_eq!(redacted(secret, &pieces), expected);
        }
    }
}
