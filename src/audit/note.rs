//! Checkpoints: the trail's size and root, signed, in the formats of C2SP (`tlog-checkpoint`, `signed-note`), so that tools and
//! witnesses that know nothing of Glovebox can verify them. Pure.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use super::tree::Hash;
use crate::digest::hex;

/// The type of key: Ed25519 over the text.
const ED25519: u8 = 1;
/// Longest note, in bytes: far above what a checkpoint with a few witnesses has.
const MOST_BYTES: usize = 16 * 1024;
/// Most signatures of one.
const MOST_SIGNATURES: usize = 16;

/// Where a trail stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The trail's own name, which no other has.
    pub origin: String,
    /// How many entries there are.
    pub size: u64,
    /// What stands for them all.
    pub root: Hash,
}

impl Checkpoint {
    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, BASE64.encode(self.root))
    }

    /// The note, signed by each of these.
    #[must_use]
    pub fn sign(&self, signers: &[Signer]) -> String {
        let text = self.text();
        let mut note = format!("{text}\n");
        for signer in signers {
            let mut bytes = signer.verifier.id.to_vec();
            bytes.extend(signer.key.sign(text.as_bytes()).to_bytes());
            note += &["\u{2014} ", &signer.verifier.name, " ", &BASE64.encode(bytes), "\n"].concat();
        }
        note
    }

    /// Reads a note that at least one of these has signed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(note: &str, verifiers: &[Verifier]) -> Result<Self, Wrong> {
        let (text, signatures) = split(note)?;
        let mut known = false;
        for line in signatures.lines() {
            let (name, bytes) = signature(line)?;
            let Some((id, signature)) = bytes.split_first_chunk::<4>() else { return Err(Wrong::Malformed) };
            // Others may sign too: their signatures say nothing to us.
            let ours = verifiers.iter().find(|verifier| verifier.name == name && verifier.id == *id);
            let Some(verifier) = ours else { continue };
            let signature = Signature::from_slice(signature).map_err(|_| Wrong::Malformed)?;
            verifier.key.verify_strict(text.as_bytes(), &signature).map_err(|_| Wrong::Forged)?;
            known = true;
        }
        if known { Self::read(text) } else { Err(Wrong::Unknown) }
    }

    fn read(text: &str) -> Result<Self, Wrong> {
        let mut lines = text.lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(Wrong::Malformed);
        };
        let size: u64 = size.parse().map_err(|_| Wrong::Malformed)?;
        let root =
            BASE64.decode(root).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(Wrong::Malformed)?;
        let checkpoint = Self { origin: origin.to_owned(), size, root };
        // Written in one way alone: what says the same otherwise was not written here.
        if checkpoint.text() == text { Ok(checkpoint) } else { Err(Wrong::Malformed) }
    }
}

/// The signed text with its last line's end, and the lines of signatures.
fn split(note: &str) -> Result<(&str, &str), Wrong> {
    let controls = note.chars().any(|c| c.is_control() && c != '\n');
    if note.len() > MOST_BYTES || controls || !note.ends_with('\n') {
        return Err(Wrong::Malformed);
    }
    let at = note.rfind("\n\n").ok_or(Wrong::Malformed)?;
    let (text, signatures) = (&note[..=at], &note[at + 2..]);
    if signatures.is_empty() || signatures.lines().count() > MOST_SIGNATURES {
        return Err(Wrong::Malformed);
    }
    Ok((text, signatures))
}

fn signature(line: &str) -> Result<(&str, Vec<u8>), Wrong> {
    let (name, bytes) =
        line.strip_prefix("\u{2014} ").and_then(|rest| rest.split_once(' ')).ok_or(Wrong::Malformed)?;
    Ok((name, BASE64.decode(bytes).map_err(|_| Wrong::Malformed)?))
}

/// Why a note is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is no checkpoint.
    Malformed,
    /// A signature by a known name is not good.
    Forged,
    /// Nobody who is known has signed it.
    Unknown,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is no checkpoint",
            Self::Forged => "its signature is not good",
            Self::Unknown => "none of the keys that are trusted has signed it",
        })
    }
}

/// A key that checkpoints are held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    name: String,
    id: [u8; 4],
    key: VerifyingKey,
}

impl Verifier {
    fn new(name: &str, key: VerifyingKey) -> Self {
        let mut id = [0; 4];
        let digest = Sha256::new()
            .chain_update(name)
            .chain_update([b'\n', ED25519])
            .chain_update(key.as_bytes())
            .finalize();
        id.copy_from_slice(&digest[..4]);
        Self { name: name.to_owned(), id, key }
    }

    /// Whose it is: the trail's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a key as the format writes it: `NAME+HASH+KEY`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(3, '+');
        let (name, id, key) = (parts.next()?, parts.next()?, parts.next()?);
        let bytes = BASE64.decode(key).ok()?;
        let (ED25519, key) = bytes.split_first().map(|(kind, key)| (*kind, key))? else { return None };
        let verifier = Self::new(name, VerifyingKey::from_bytes(key.try_into().ok()?).ok()?);
        (is_name(name) && hex(&verifier.id) == id).then_some(verifier)
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&[ED25519][..], self.key.as_bytes()].concat();
        write!(f, "{}+{}+{}", self.name, hex(&self.id), BASE64.encode(bytes))
    }
}

/// A key that signs.
pub struct Signer {
    key: SigningKey,
    verifier: Verifier,
}

impl Signer {
    /// With the name of the trail.
    #[must_use]
    pub fn new(name: &str, key: SigningKey) -> Option<Self> {
        let verifier = Verifier::new(name, key.verifying_key());
        is_name(name).then_some(Self { key, verifier })
    }

    /// What its signatures are held against.
    #[must_use]
    pub const fn verifier(&self) -> &Verifier {
        &self.verifier
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.verifier)
    }
}

/// Whether a trail may have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_graphic() && byte != b'+';
    !name.is_empty() && name.len() <= 200 && name.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use signed_note::{Note, StandardVerifier, VerifierList};

    use super::*;

    fn signer(name: &str, seed: u8) -> Signer {
        Signer::new(name, SigningKey::from_bytes(&[seed; 32])).unwrap()
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint { origin: "glovebox.example/audit".into(), size: 7, root: [9; 32] }
    }

    #[test]
    fn another_implementation_takes_them() {
        let signers = [signer("glovebox.example/audit", 1), signer("other.example", 2)];
        let note = checkpoint().sign(&signers);
        for signer in &signers {
            let key = signer.verifier().to_string();
            let verifier = StandardVerifier::new(&key).unwrap();
            let read = Note::from_bytes(note.as_bytes()).unwrap();
            let (good, _) = read.verify(&VerifierList::new(vec![Box::new(verifier)])).unwrap();
            assert_eq!(good.len(), 1);
            assert_eq!(Verifier::parse(&key).as_ref(), Some(signer.verifier()));
        }
    }

    #[test]
    fn one_known_signature_is_needed_and_each_known_one_must_be_good() {
        let (a, b) = (signer("a", 1), signer("b", 2));
        let (va, vb) = (a.verifier().clone(), b.verifier().clone());
        let both = checkpoint().sign(&[a, b]);
        assert_eq!(Checkpoint::open(&both, std::slice::from_ref(&va)), Ok(checkpoint()));
        assert_eq!(Checkpoint::open(&both, std::slice::from_ref(&vb)), Ok(checkpoint()));
        assert_eq!(Checkpoint::open(&both, &[]), Err(Wrong::Unknown));
        let stranger = signer("c", 3).verifier().clone();
        assert_eq!(Checkpoint::open(&both, &[stranger]), Err(Wrong::Unknown));
        let other_size = both.replacen("\n7\n", "\n8\n", 1);
        assert_eq!(Checkpoint::open(&other_size, std::slice::from_ref(&va)), Err(Wrong::Forged));
        for bad in [
            "",
            "\n",
            "a\n7\n",
            &both.replace('\u{2014}', "-"),
            both.trim_end(),
            &both.replacen("\n7\n", "\n7\r\n", 1),
            &format!("{both}\n"),
        ] {
            assert_eq!(Checkpoint::open(bad, &[va.clone(), vb.clone()]), Err(Wrong::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn keys_are_read_strictly() {
        let key = signer("a", 1).verifier().to_string();
        assert!(Verifier::parse(&format!("{key}\n")).is_some());
        let renamed = key.replacen('a', "b", 1);
        for bad in ["", "a", "a+b", "a+00000000+AQ==", &renamed, &key[..key.len() - 4]] {
            assert!(Verifier::parse(bad).is_none(), "{bad}");
        }
        for name in ["", "a b", "a+b", "a\n", "ä"] {
            assert!(Signer::new(name, SigningKey::from_bytes(&[1; 32])).is_none(), "{name:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn anything_is_read(text in "\\PC*", at in 0..300_usize, byte in 32..127_u8) {
            let signer = signer("a", 1);
            let known = [signer.verifier().clone()];
            let _ = (Checkpoint::open(&text, &known), Verifier::parse(&text));
            // One letter that differs is noticed.
            let note = checkpoint().sign(&[signer]);
            let mut other = note.clone().into_bytes();
            if let Some(place) = other.get_mut(at) {
                *place = byte;
            }
            if other != note.as_bytes() {
                let other = String::from_utf8_lossy(&other);
                proptest::prop_assert!(Checkpoint::open(&other, &known).is_err());
            }
        }
    }
}
