//! Takes secrets out of what a server answers, in the forms in which one is given back by accident, however the answer is split.
//!
//! Each byte becomes one asterisk, so that lengths stay. A server that means to give its client the secret can always do so, in a form
//! that nobody knows: the hosts of a credential must be ones to trust with it.

use aho_corasick::{AhoCorasick, BuildError};
use zeroize::Zeroizing;

use super::{Secret, forms};

/// What is written in place of each byte.
const IN_PLACE: u8 = b'*';

/// Takes secrets out of one answer.
pub struct Redactor {
    finder: AhoCorasick,
    forms: Vec<Form>,
    /// What may be the beginning of a form, with what of it was part of one already.
    held: Zeroizing<Vec<u8>>,
    covered: Vec<bool>,
}

impl Redactor {
    /// For the secrets that went out.
    ///
    /// # Errors
    /// When they are too much to be searched for.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Result<Self, BuildError> {
        let forms: Vec<Form> = forms::of(secrets).into_iter().map(Form::new).collect();
        let finder = AhoCorasick::new(forms.iter().map(|form| form.bytes.as_slice()))?;
        Ok(Self { finder, forms, held: Zeroizing::default(), covered: Vec::new() })
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
        // They come by their ends, so that from the last end backwards each byte has to be covered once.
        let mut covered_from = self.held.len();
        let mut found: Vec<_> = self.finder.find_overlapping_iter(self.held.as_slice()).collect();
        while let Some(one) = found.pop() {
            let end = one.end().min(covered_from);
            if let Some(covered) = self.covered.get_mut(one.start()..end) {
                covered.fill(true);
                covered_from = one.start();
            }
        }
        let beginnings = self.forms.iter().map(|form| form.beginning(&self.held));
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

/// A form, and what is still good of it where the next byte is another one (Knuth, Morris and Pratt): for each of its beginnings the
/// longest that is also its end.
struct Form {
    bytes: Zeroizing<Vec<u8>>,
    borders: Vec<usize>,
}

impl Form {
    fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        let mut form = Self { borders: vec![0; bytes.len()], bytes };
        let mut border = 0;
        for at in 1..form.bytes.len() {
            border = form.next(border, form.bytes.get(at).copied());
            if let Some(slot) = form.borders.get_mut(at) {
                *slot = border;
            }
        }
        form
    }

    /// How much of its beginning stands before the next place, if so much did and this byte comes.
    fn next(&self, mut length: usize, byte: Option<u8>) -> usize {
        while length > 0 && self.bytes.get(length).copied() != byte {
            length = self.borders.get(length - 1).copied().unwrap_or_default();
        }
        length + usize::from(self.bytes.get(length).copied() == byte)
    }

    /// How much of the end of `text` is its beginning, and not all of it.
    fn beginning(&self, text: &[u8]) -> usize {
        let most = self.bytes.len().saturating_sub(1).min(text.len());
        let end = text.get(text.len() - most..).unwrap_or_default();
        end.iter().fold(0, |length, byte| self.next(length, Some(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redacted(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut redactor = Redactor::new([&Secret::new(secret.to_vec()).unwrap()]).unwrap();
        let mut clean = Vec::new();
        for part in parts {
            redactor.push(part, &mut clean);
        }
        redactor.finish(&mut clean);
        clean
    }

    #[test]
    fn it_is_taken_out_and_nothing_else() {
        assert_eq!(redacted(b"sk-abcabc", &[b"a sk-abcabc b sk-ab", b"cabc"]), b"a ********* b *********");
        let innocent = b"sk-abcab sk-abc sk-abcab\"";
        assert_eq!(redacted(b"sk-abcabc", &[innocent]), innocent);
    }

    #[test]
    fn what_overlaps_is_taken_out_as_well() {
        assert_eq!(redacted(b"abababab", &[b"xababababababx"]), b"x************x");
        assert_eq!(redacted(b"abababab", &[b"xabab", b"abab", b"ababx"]), b"x************x");
        let one = Secret::new(b"bbbbbbbb".to_vec()).unwrap();
        let two = Secret::new(b"aabbbbbbbbcc".to_vec()).unwrap();
        let mut text = b"x aabbbbbbbbcc bbbbbbbb".to_vec();
        Redactor::new([&one, &two]).unwrap().whole(&mut text);
        assert_eq!(text, b"x ************ ********");
    }

    #[test]
    fn nothing_is_held_that_can_not_become_the_secret() {
        let mut redactor = Redactor::new([&Secret::new(b"sk-abcabc".to_vec()).unwrap()]).unwrap();
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
