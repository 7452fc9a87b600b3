//! The head of a request or an answer: refused, or read in one way, which is what is written.
#![no_main]

use glovebox::gateway::{
    framing::Framing,
    head::{Answer, MOST_BYTES, Request, Version},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(Some((request, length))) = Request::parse(input) {
        assert!(length <= input.len() && length <= MOST_BYTES && input[..length].ends_with(b"\r\n\r\n"));
        // A part of a head is no head.
        assert!(!matches!(Request::parse(&input[..length - 1]), Ok(Some(_))));
        if !request.path().is_empty() {
            let written = request.render("host.example");
            let text = String::from_utf8_lossy(&written).to_ascii_lowercase();
            assert_eq!(text.matches("\r\n\r\n").count(), 1);
            assert!(
                text.matches("\r\nhost:").count() == 1
                    && text.contains("\r\nconnection: close\r\n") != request.websocket
            );
            assert!(!text.contains("\r\nproxy-") && !text.contains("\r\nx-forwarded-"));
            let framed =
                text.matches("\r\ncontent-length:").count() + text.matches("\r\ntransfer-encoding:").count();
            assert!(framed <= 1 && (framed == 1 || request.framing == Framing::Length(0)));
            let (again, read) = Request::parse(&written).expect("it is well-formed").expect("it is whole");
            assert_eq!((again.framing, again.path(), read), (request.framing, request.path(), written.len()));
        }
    }
    for method in ["GET", "HEAD"] {
        if let Ok(Some((answer, length))) = Answer::parse(input, method, Version::Http11, true) {
            assert!(
                length <= input.len() && answer.interim() == (answer.status < 200 && answer.status != 101)
            );
            let written = answer.render(Version::Http11, method);
            let (again, read) = Answer::parse(&written, method, Version::Http11, true)
                .expect("it is well-formed")
                .expect("it is whole");
            assert_eq!((again.status, again.framing, read), (answer.status, answer.framing, written.len()));
        }
    }
});
