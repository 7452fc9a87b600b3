//! Takes secrets out of what a server answers, in the forms in which one is given back by accident, however the answer is split.
//!
//! Each byte becomes one asterisk, so that lengths stay. A server that means to give its client the secret can always do so, in a form
//! that nobody knows: the hosts of a credential must be ones to trust with it.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError};
use zeroize::Zeroizing;

use super::{Secret, forms};

/// What is written in place of each byte.
const IN_PLACE: u8 = b'*';
/// What came is searched byte by byte where it is so many times less than what is held, and else together with that: so that each byte
/// is looked at a few times, however it comes.
const LITTLE: usize = 8;

/// All forms of a secret, and what finds them. Made once: it is many times as large as the secret.
pub(super) struct Known {
    finder: AhoCorasick,
    forms: Vec<Form>,
}

impl Known {
    /// # Errors
    /// When the secret is too much to be searched for.
    pub(super) fn new(secret: &[u8]) -> Result<Self, BuildError> {
        let forms: Vec<Form> = forms::of(secret).into_iter().map(Form::new).collect();
        // A table of all states and bytes would be a hundred times as large.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let finder =
            AhoCorasick::builder().kind(kind).build(forms.iter().map(|form| form.bytes.as_slice()))?;
        Ok(Self { finder, forms })
    }
}

/// Takes secrets out of one answer.
pub struct Redactor {
    known: Vec<Arc<Known>>,
    /// How much of each form's beginning stands at the end of what is held.
    begun: Vec<Vec<usize>>,
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
        let known = secrets.into_iter().map(Secret::known).collect::<Result<Vec<_>, _>>()?;
        let begun = known.iter().map(|known| vec![0; known.forms.len()]).collect();
        Ok(Self { known, begun, held: Zeroizing::default(), covered: Vec::new() })
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
        let before = self.held.len();
        self.held.extend_from_slice(more);
        self.covered.resize(self.held.len(), false);
        for (known, begun) in self.known.iter().zip(&mut self.begun) {
            if more.len().saturating_mul(LITTLE) < before {
                byte_by_byte(known, begun, &self.held, before, &mut self.covered);
            } else {
                together(known, begun, &self.held, &mut self.covered);
            }
        }
        let kept = self.begun.iter().flatten().max().copied().unwrap_or_default();
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

/// Looks through all that is held.
fn together(known: &Known, begun: &mut [usize], held: &[u8], covered: &mut [bool]) {
    // They come by their ends, so that from the last end backwards each byte has to be covered once.
    let mut covered_from = held.len();
    let mut found: Vec<_> = known.finder.find_overlapping_iter(held).collect();
    while let Some(one) = found.pop() {
        if let Some(covered) = covered.get_mut(one.start()..one.end().min(covered_from)) {
            covered.fill(true);
            covered_from = one.start();
        }
    }
    for (form, begun) in known.forms.iter().zip(begun) {
        *begun = form.beginning(held);
    }
}

/// Looks at what came alone, from how far each form had begun.
fn byte_by_byte(known: &Known, begun: &mut [usize], held: &[u8], before: usize, covered: &mut [bool]) {
    for (form, begun) in known.forms.iter().zip(begun) {
        for (at, byte) in held.iter().enumerate().skip(before) {
            *begun = form.next(*begun, Some(*byte));
            if *begun == form.bytes.len() {
                if let Some(covered) = covered.get_mut(at + 1 - *begun..=at) {
                    covered.fill(true);
                }
                *begun = form.borders.last().copied().unwrap_or_default();
            }
        }
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
