//! Heads that are read, and heads that are refused with their reason.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Option<Request>, HeadError> {
    Request::parse(text.as_bytes()).map(|read| read.map(|(request, _)| request))
}

fn refused(text: &str) -> HeadError {
    parse(text).expect_err(text)
}

#[test]
fn reads_the_three_forms() {
    let origin = parse("GET /a?b HTTP/1.1\r\nHost: x.example\r\n\r\n").unwrap().unwrap();
    assert_eq!((origin.path(), origin.host.as_deref()), ("/a?b", Some("x.example")));
    let absolute =
        parse("GET HTTP://x.example:81?q HTTP/1.1\r\nHost: x.example:81\r\n\r\n").unwrap().unwrap();
    let expected = Target::Absolute { authority: "x.example:81".into(), path: "/?q".into() };
    assert_eq!(absolute.target, expected);
    let connect = parse("CONNECT x.example:443 HTTP/1.1\r\n\r\n").unwrap().unwrap();
    assert_eq!(connect.target, Target::Authority("x.example:443".into()));
    assert_eq!(parse("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").unwrap().unwrap().path(), "*");
}

#[test]
fn waits_for_the_rest_and_says_where_it_ends() {
    let text = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
    for at in 0..text.len() {
        assert_eq!(parse(&text[..at]), Ok(None), "{at}");
    }
    let (request, length) = Request::parse(format!("{text}abc").as_bytes()).unwrap().unwrap();
    assert_eq!((request.framing, length), (Framing::Length(3), text.len()));
}

/// What is known to be read in two ways by two programs in a row.
#[test]
fn refuses_what_is_ambiguous() {
    let with = |fields: &str| refused(&format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: \r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content_Length: 3\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer_Encoding: chunked\r\n",
    ] {
        assert_eq!(with(fields), HeadError::Framing, "{fields}");
    }
    for (fields, why) in [
        ("Transfer-Encoding : chunked\r\n", HeadError::Syntax),
        ("Transfer-Encoding\t: chunked\r\n", HeadError::Syntax),
        ("Transfer-Encoding\u{b}: chunked\r\n", HeadError::Control),
        ("Transfer-Encoding:\u{b}chunked\r\n", HeadError::Control),
        ("X: y\r\n Transfer-Encoding: chunked\r\n", HeadError::Folded),
        ("X: y\r\n\tz\r\n", HeadError::Folded),
        ("X: y\nTransfer-Encoding: chunked\r\n", HeadError::LineEnd),
        ("X: y\rTransfer-Encoding: chunked\r\n", HeadError::LineEnd),
        ("X: y\r\r\n", HeadError::LineEnd),
        ("X: \0\r\n", HeadError::Control),
        ("X\r\n", HeadError::Syntax),
        (": y\r\n", HeadError::Syntax),
        ("X y: z\r\n", HeadError::Syntax),
        ("Host: y\r\n", HeadError::Host),
    ] {
        assert_eq!(with(fields), why, "{fields:?}");
    }
    assert_eq!(
        refused("POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
        HeadError::Framing
    );
    assert_eq!(refused("CONNECT x:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), HeadError::Framing);
    assert_eq!(refused("GET / HTTP/1.1\nHost: x\n\n"), HeadError::LineEnd);
}

#[test]
fn refuses_other_first_lines() {
    for (text, why) in [
        ("GET / HTTP/1.1\r\n\r\n", HeadError::Host),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", HeadError::Syntax),
        ("GET /\r\nHost: x\r\n\r\n", HeadError::Syntax),
        ("PRI * HTTP/2.0\r\n\r\n", HeadError::Syntax),
        ("\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Syntax),
        (" GET / HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Syntax),
        ("GET https://x/ HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Scheme),
        ("GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Scheme),
        ("GET x/ HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Target),
        ("GET * HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Target),
        ("GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Byte),
        ("GET /\u{e4} HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Byte),
        ("G\0T / HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Control),
        ("GET  / HTTP/1.1\r\nHost: x\r\n\r\n", HeadError::Syntax),
        ("GET / HTTP/1.1 \r\nHost: x\r\n\r\n", HeadError::Syntax),
    ] {
        assert_eq!(refused(text), why, "{text:?}");
    }
}

#[test]
fn a_head_has_an_end() {
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(MOST_BYTES));
    assert_eq!(refused(&long), HeadError::TooLong);
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(150));
    assert_eq!(refused(&many), HeadError::TooLong);
}

/// What is written anew is longer than what came, and must still be read by the next: found by fuzzing, with a hundred fields.
#[test]
fn what_is_passed_on_can_be_read_again() {
    let answer = |text: &str| Answer::parse(text.as_bytes(), "GET", Version::Http11, false);
    for (fields, fits) in [(96, true), (97, false), (100, false)] {
        let fields = "x:y\r\n".repeat(fields);
        let request = parse(&format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
        assert_eq!(request.is_ok(), fits, "{request:?}");
        let text = format!("HTTP/1.1 200\r\n{fields}\r\n");
        assert_eq!(answer(&text).is_ok(), fits);
        if let (Ok(Some(request)), Ok(Some((answered, _)))) = (request, answer(&text)) {
            let written = request.render(&"h".repeat(253));
            assert_eq!(Request::parse(&written).unwrap().unwrap().1, written.len());
            let written = answered.render(Version::Http11, "GET");
            assert_eq!(
                Answer::parse(&written, "GET", Version::Http11, false).unwrap().unwrap().1,
                written.len()
            );
        }
    }
    let long = |bytes: usize| format!("GET / HTTP/1.1\r\nHost: x\r\nX:{}\r\n\r\n", "y".repeat(bytes));
    let room = MOST_PASSED_BYTES - "GET/".len() - "X: \r\n".len();
    let request = parse(&long(room)).unwrap().unwrap();
    let written = request.render(&format!("{}:65535", "h".repeat(253)));
    assert_eq!(Request::parse(&written).unwrap().unwrap().1, written.len());
    assert_eq!(refused(&long(room + 1)), HeadError::TooLong);
}

#[test]
fn is_written_anew_without_what_ends_here() {
    let text = "POST http://X.example/a HTTP/1.1\r\nHost: x.EXAMPLE\r\nProxy-Authorization: Basic x\r\n\
        X-Forwarded-For: 10.0.0.1\r\nForwarded: for=1\r\nVia: 1.1 me\r\nX-Real-IP: 1\r\nAccept: a\r\n\
        Connection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nUpgrade: websocket\r\nTE: trailers\r\n\
        Transfer-Encoding: Chunked\r\n\r\n";
    let out = parse(text).unwrap().unwrap().render("x.example");
    let expected = "POST /a HTTP/1.1\r\nHost: x.example\r\nAccept: a\r\nTransfer-Encoding: chunked\r\n\
        Connection: close\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn answers_are_read_as_strictly() {
    let read = |text: &str, method: &str| {
        Answer::parse(text.as_bytes(), method, Version::Http11, false).map(|read| read.unwrap().0)
    };
    let answer =
        read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nAlt-Svc: h3\r\nKeep-Alive: 1\r\n\r\n", "GET").unwrap();
    assert_eq!(answer.framing, Some(Framing::Length(3)));
    let out = String::from_utf8(answer.render(Version::Http11, "GET")).unwrap();
    assert_eq!(out, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n");
    let head = read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD").unwrap();
    assert_eq!(head.framing, Some(Framing::Length(0)));
    let out = String::from_utf8(head.render(Version::Http11, "HEAD")).unwrap();
    assert_eq!(out, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n");
    assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n", "GET").unwrap().framing, None);
    assert!(read("HTTP/1.1 100 Continue\r\n\r\n", "POST").unwrap().interim());
    assert_eq!(read("HTTP/1.1 101 Switching\r\n\r\n", "GET"), Err(HeadError::Switch));
    for status in ["000", "099", "600", "999", "20", "2000", "abc", "+20"] {
        assert_eq!(read(&format!("HTTP/1.1 {status} OK\r\n\r\n"), "GET"), Err(HeadError::Syntax), "{status}");
    }
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(both, "GET"), Err(HeadError::Framing));
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(Answer::parse(chunked, "GET", Version::Http10, false), Err(HeadError::Framing));
}

#[test]
fn a_websocket_is_asked_for_and_agreed_to_or_it_is_none() {
    let ask = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
        Sec-WebSocket-Key: k\r\n\r\n";
    let request = parse(ask).unwrap().unwrap();
    assert!(request.websocket);
    let expected = "GET /a HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Key: k\r\n\
        Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(String::from_utf8(request.render("x")).unwrap(), expected);
    for other in [
        ask.replace("Upgrade: WebSocket", "Upgrade: h2c"),
        ask.replace("keep-alive, Upgrade", "keep-alive"),
        ask.replace("GET", "POST"),
        ask.replace("HTTP/1.1", "HTTP/1.0"),
        ask.replace("Sec-", "Content-Length: 3\r\nSec-"),
    ] {
        let request = parse(&other).unwrap().unwrap();
        assert!(!request.websocket, "{other}");
        assert!(!String::from_utf8(request.render("x")).unwrap().contains("pgrade"), "{other}");
    }
    let answer = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Accept: a\r\n\r\n";
    let read = |websocket| Answer::parse(answer, "GET", Version::Http11, websocket);
    assert_eq!(read(false), Err(HeadError::Switch));
    let (agreed, _) = read(true).unwrap().unwrap();
    assert!(agreed.switches() && !agreed.interim());
    let written = String::from_utf8(agreed.render(Version::Http11, "GET")).unwrap();
    let end = "Sec-WebSocket-Accept: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert!(written.ends_with(end), "{written}");
}

proptest! {
    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Request::parse(&bytes);
        let _ = Answer::parse(&bytes, "GET", Version::Http11, true);
    }

    /// What is written is read again as the same: there is no second meaning in it.
    #[test]
    fn what_is_written_reads_back(
        method in "[A-Z]{1,8}", path in "/[!-\"$-~]{0,30}", length in 0..u64::from(u32::MAX), chunked: bool,
        fields in prop::collection::vec(("X-[A-Za-z0-9-]{1,12}", "[!-~][ -~]{0,20}[!-~]"), 0..5),
    ) {
        prop_assume!(method != "CONNECT");
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: x.example\r\n");
        for (name, value) in &fields {
            text += &format!("{name}: {value}\r\n");
        }
        text += &if chunked { "Transfer-Encoding: chunked\r\n\r\n".into() } else { format!("Content-Length: {length}\r\n\r\n") };
        let (first, _) = Request::parse(text.as_bytes()).unwrap().unwrap();
        let written = first.render("x.example");
        let (second, read) = Request::parse(&written).unwrap().unwrap();
        prop_assert_eq!(read, written.len());
        prop_assert_eq!(first, second);
    }
}

/// What [`end`] says, byte by byte.
fn naive_end(bytes: &[u8]) -> Result<Option<usize>, HeadError> {
    let (mut line, mut before) = (0, 0);
    for (at, byte) in bytes.iter().copied().enumerate().take(MOST_BYTES) {
        match (before, byte) {
            (b'\r', b'\n') if at == line + 1 && line == 0 => return Err(HeadError::Syntax),
            (b'\r', b'\n') if at == line + 1 => return Ok(Some(at + 1)),
            (b'\r', b'\n') => line = at + 1,
            (b'\r', _) | (_, b'\n') => return Err(HeadError::LineEnd),
            (_, b' ' | b'\t') if at == 0 => return Err(HeadError::Syntax),
            (_, b' ' | b'\t') if at == line => return Err(HeadError::Folded),
            (_, b'\t' | b'\r') => {}
            (_, 0..=0x1f | 0x7f) => return Err(HeadError::Control),
            _ => {}
        }
        before = byte;
    }
    if bytes.len() >= MOST_BYTES { Err(HeadError::TooLong) } else { Ok(None) }
}

proptest! {
    #[test]
    fn lines_end_where_they_do_byte_by_byte(
        parts in prop::collection::vec(
            prop_oneof![
                Just(b"\r\n".to_vec()), Just(b"\r".to_vec()), Just(b"\n".to_vec()), Just(b" ".to_vec()), Just(b"\t".to_vec()),
                Just(b"a: b\r\n".to_vec()), Just(b"GET / HTTP/1.1\r\n".to_vec()), prop::collection::vec(any::<u8>(), 0..4),
            ],
            0..12,
        ),
        long in prop_oneof![8 => Just(0), 1 => MOST_BYTES - 40..MOST_BYTES + 2],
    ) {
        let bytes = [vec![b'x'; long], parts.concat()].concat();
        prop_assert_eq!(end(&bytes), naive_end(&bytes));
    }
}
