//! Certificates as text (PEM, RFC 7468), taken out of whatever stands around them and written anew.
//!
//! Knows the shape alone: whether a certificate is good is for whoever uses it to find out. Must pass on nothing but
//! certificates, least of all a key that stands beside one.

/// Files in which a sandbox finds whom it trusts: the agent writes them, variables of the pod point to them.
pub mod files {
    /// The installation's authority alone, for programs that add it to their own.
    pub const AUTHORITY: &str = "ca.crt";
    /// The authority and those of the image, for programs that take a file in place of their own.
    pub const BUNDLE: &str = "ca-bundle.crt";
    /// The start-up file of wget, which reads no variable that names certificates.
    pub const WGETRC: &str = "wgetrc";
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// What the label of every kind of private key ends with: PKCS#1, SEC1, PKCS#8 and the encrypted ones.
const PRIVATE_KEY: &[u8] = b"PRIVATE KEY-----";
/// Longest certificate, in characters of base64: far more than any that is in use.
const MOST_CHARACTERS: usize = 64 * 1024;
/// Characters of a line that is written, as RFC 7468 has it.
const LINE: usize = 64;

/// The certificates of a text, in their order, each written in one way. What is no whole certificate is left out.
#[must_use]
pub fn certificates(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii) {
        if line == BEGIN.as_bytes() {
            open = Some(String::new());
        } else if line == END.as_bytes() {
            found.extend(open.take().filter(|body| is_certificate(body)).map(|body| written(&body)));
        } else if let Some(body) = &mut open {
            let characters = std::str::from_utf8(line).ok().filter(|line| line.bytes().all(is_base64));
            match characters {
                Some(line) if body.len() + line.len() <= MOST_CHARACTERS => body.push_str(line),
                _ => open = None,
            }
        }
    }
    found
}

/// Whether a private key stands in the text, in any form.
#[must_use]
pub fn has_private_key(text: &[u8]) -> bool {
    text.windows(PRIVATE_KEY.len()).any(|window| window == PRIVATE_KEY)
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Whether this could be base64 of a DER SEQUENCE with a length of its own, which every certificate is.
fn is_certificate(body: &str) -> bool {
    let characters = body.trim_end_matches('=');
    body.starts_with("MI")
        && body.len().is_multiple_of(4)
        && body.len() - characters.len() <= 2
        && !characters.contains('=')
}

fn written(body: &str) -> String {
    let mut out = String::with_capacity(body.len() + body.len() / LINE + BEGIN.len() + END.len() + 3);
    out.push_str(BEGIN);
    out.push('\n');
    let mut rest = body;
    while !rest.is_empty() {
        // ASCII, so that every place is a border.
        let (line, more) = rest.split_at(LINE.min(rest.len()));
        out.push_str(line);
        out.push('\n');
        rest = more;
    }
    out.push_str(END);
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(body: &str) -> String {
        format!("{BEGIN}\n{body}\n{END}\n")
    }

    #[test]
    fn certificates_are_found_among_anything() {
        let text = format!(
            "# Somebody's root\n{}junk\n-----BEGIN EC PRIVATE KEY-----\nMIIC\n-----END EC PRIVATE KEY-----\n  {}",
            block("MIIB"),
            block("MIIC\r\n  AAA=").replace('\n', "\r\n")
        );
        assert_eq!(certificates(text.as_bytes()), [block("MIIB"), block("MIICAAA=")]);
        assert!(has_private_key(text.as_bytes()) && !has_private_key(block("MIIB").as_bytes()));
        let long = "MIIB".repeat(40);
        let written = certificates(block(&long).as_bytes()).concat();
        assert!(
            written.lines().all(|line| line.len() <= LINE) && certificates(written.as_bytes()).len() == 1
        );
    }

    #[test]
    fn what_is_no_whole_certificate_is_left_out() {
        let endless = format!("{BEGIN}\n{}", "MIIB".repeat(MOST_CHARACTERS));
        for text in [
            "",
            "MIIB",
            BEGIN,
            &format!("{BEGIN}\nMIIB\n"),
            &format!("MIIB\n{END}\n"),
            &block(""),
            &block("MII"),
            &block("MIIB===="),
            &block("MI=B"),
            &block("AAAA"),
            &block("MII!"),
            &block("MII\0"),
            &block("Proc-Type: 4,ENCRYPTED\n\nMIIB"),
            &block("MIIB").replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
            &format!("{endless}\n{END}\n"),
        ] {
            assert_eq!(certificates(text.as_bytes()), Vec::<String>::new(), "{:.80}", text);
        }
        // One that was broken off takes nothing of the next with it.
        let text = format!("{BEGIN}\nMIIA\n{}", block("MIIB"));
        assert_eq!(certificates(text.as_bytes()), [block("MIIB")]);
    }

    proptest! {
        #[test]
        fn nothing_but_certificates_comes_out(
            parts in prop::collection::vec(prop_oneof![
                Just(BEGIN.as_bytes().to_vec()), Just(END.as_bytes().to_vec()), Just(b"MIIB".to_vec()),
                Just(b"-----BEGIN PRIVATE KEY-----".to_vec()), Just(b"\n".to_vec()), prop::collection::vec(any::<u8>(), 0..40),
            ], 0..40)
        ) {
            let text = parts.concat();
            let found = certificates(&text);
            for certificate in &found {
                let end = [END, "\n"].concat();
                prop_assert!(certificate.starts_with(BEGIN) && certificate.ends_with(&end));
                prop_assert!(!has_private_key(certificate.as_bytes()));
            }
            // Written once, it stays as it is.
            prop_assert_eq!(certificates(found.concat().as_bytes()), found);
        }
    }
}
