//! A DNS packet: no answer, or one that is well-formed, no longer than it may be, and to the same question.
#![no_main]

use glovebox::gateway::dns::{Known, Outcome, answer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for most in [512, 65535] {
        let mut asked = None;
        let answered = answer(input, most, |name| {
            asked = Some(name.is_ok());
            match name {
                Ok(host) if host.as_str().len() % 2 == 0 => Known::Here([192, 0, 2, 1].into()),
                _ => Known::Denied("no rule names this host; ask for one ".repeat(8)),
            }
        });
        let Some((reply, outcome)) = answered else {
            assert!(input.len() < 12 || input[2] & 0x80 != 0);
            continue;
        };
        assert!(reply.len() >= 12 && reply[..2] == input[..2] && reply[2] & 0x80 != 0 && reply.len() <= 1232);
        let answers = u16::from_be_bytes([reply[6], reply[7]]);
        assert_eq!(answers > 0, outcome == Outcome::Address && reply[2] & 2 == 0);
        assert!(
            asked.is_some()
                || matches!(outcome, Outcome::Malformed | Outcome::NotImplemented | Outcome::Refused)
        );
    }
});
