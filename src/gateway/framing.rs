//! Where a body ends: by length, or by chunks, which are written anew.
//!
//! Hostile bytes. A byte after the end belongs to nobody and is never passed on: it would be a request that was not judged.

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks, until the empty one.
    Chunked,
}

/// A chunk or its line that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunked body is malformed")]
pub struct Malformed;

/// What a body is passed on to.
pub trait Out {
    /// Bytes of its frame: sizes and ends of chunks.
    fn frame(&mut self, bytes: &[u8]);
    /// Bytes of what it carries.
    fn payload(&mut self, bytes: &[u8]);
}

/// As it is.
impl Out for Vec<u8> {
    fn frame(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn payload(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Most bytes of a chunk's line, its extensions included; they are not passed on.
const MOST_LINE: usize = 256;
/// Most bytes of all trailers; they are not passed on.
const MOST_TRAILERS: usize = 8 * 1024;
/// Hexadecimal digits of a chunk's size.
const MOST_DIGITS: usize = 15;

#[derive(Debug)]
enum State {
    Bytes(u64),
    Line(Vec<u8>),
    Chunk(u64),
    ChunkEnd(u8),
    Trailer { line: usize, all: usize, cr: bool },
    Done,
}

/// A body on its way.
#[derive(Debug)]
pub struct Body {
    state: State,
}

impl Body {
    /// At the beginning.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Bytes(length),
            Framing::Chunked => State::Line(Vec::new()),
        };
        Self { state }
    }

    /// Whether all of it came.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Takes what came; appends what is passed on to `out`. How many bytes belonged to the body.
    ///
    /// # Errors
    /// When chunks are malformed.
    pub fn feed(&mut self, input: &[u8], out: &mut impl Out) -> Result<usize, Malformed> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty() && !self.is_done()) {
            at += self.step(rest, out)?;
        }
        Ok(at)
    }

    fn step(&mut self, rest: &[u8], out: &mut impl Out) -> Result<usize, Malformed> {
        match &mut self.state {
            State::Done => Ok(0),
            State::Bytes(left) => {
                let taken = carry(rest, left, out);
                if *left == 0 {
                    self.state = State::Done;
                }
                Ok(taken)
            }
            State::Chunk(left) => {
                let taken = carry(rest, left, out);
                if *left == 0 {
                    out.frame(b"\r\n");
                    self.state = State::ChunkEnd(b'\r');
                }
                Ok(taken)
            }
            _ => rest.first().map_or(Ok(0), |byte| self.byte(*byte, out).map(|()| 1)),
        }
    }

    /// One byte of the chunks' frame.
    fn byte(&mut self, byte: u8, out: &mut impl Out) -> Result<(), Malformed> {
        match &mut self.state {
            State::Line(line) if byte == b'\n' => {
                let size = size(line.strip_suffix(b"\r").ok_or(Malformed)?)?;
                if size == 0 {
                    out.frame(b"0\r\n\r\n");
                    self.state = State::Trailer { line: 0, all: 0, cr: false };
                } else {
                    out.frame(format!("{size:x}\r\n").as_bytes());
                    self.state = State::Chunk(size);
                }
            }
            State::Line(line) => {
                let after_cr = line.last() == Some(&b'\r');
                if line.len() >= MOST_LINE || after_cr || !(byte == b'\r' || is_text(byte)) {
                    return Err(Malformed);
                }
                line.push(byte);
            }
            State::ChunkEnd(b'\r') if byte == b'\r' => self.state = State::ChunkEnd(b'\n'),
            State::ChunkEnd(b'\n') if byte == b'\n' => self.state = State::Line(Vec::new()),
            State::Trailer { line, all, cr } => {
                *all += 1;
                match (byte, *cr) {
                    (b'\r', false) => *cr = true,
                    (b'\n', true) if *line == 0 => self.state = State::Done,
                    (b'\n', true) => (*line, *cr) = (0, false),
                    (_, false) if is_text(byte) && *all < MOST_TRAILERS => *line += 1,
                    _ => return Err(Malformed),
                }
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn carry(rest: &[u8], left: &mut u64, out: &mut impl Out) -> usize {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let taken = rest.get(..most).unwrap_or(rest);
    out.payload(taken);
    *left -= taken.len() as u64;
    taken.len()
}

/// Hexadecimal digits, then nothing or an extension.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    if digits.is_empty() || digits.len() > MOST_DIGITS || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Malformed);
    }
    std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(framing: Framing, input: &[u8]) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let (mut body, mut out) = (Body::new(framing), Vec::new());
        let taken = body.feed(input, &mut out)?;
        Ok((out, taken, body.is_done()))
    }

    #[test]
    fn a_length_ends_where_it_says() {
        let (out, taken, done) = all(Framing::Length(5), b"helloGET / HTTP/1.1").unwrap();
        assert_eq!((out.as_slice(), taken, done), (b"hello".as_slice(), 5, true));
        assert!(!all(Framing::Length(6), b"hello").unwrap().2);
        assert!(Body::new(Framing::Length(0)).is_done());
    }

    #[test]
    fn chunks_are_written_anew() {
        let input = b"5;ext=\"x\"\r\nhello\r\n0A\r\n0123456789\r\n00\r\nTrailer: x\r\n\r\nGET /";
        let (out, taken, done) = all(Framing::Chunked, input).unwrap();
        assert_eq!(out, b"5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!((taken, done), (input.len() - 5, true));
    }

    #[test]
    fn what_two_could_read_in_two_ways_is_refused() {
        for input in [
            b"5\nhello\r\n0\r\n\r\n".as_slice(),
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello0\r\n\r\n",
            b"+5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b" 5\r\nhello\r\n",
            b"5 \r\nhello\r\n",
            b"\r\nhello",
            b"-1\r\n",
            b"5\r\rhello",
            b"5;a\rb\r\nhello",
            b"5;\0\r\nhello",
            b"ffffffffffffffff\r\nx",
            b"0\r\n\n",
            b"0\r\nX: y\n\r\n",
            b"0\r\nX: y\r\r\n",
        ] {
            assert_eq!(all(Framing::Chunked, input), Err(Malformed), "{:?}", String::from_utf8_lossy(input));
        }
        assert!(all(Framing::Chunked, &[b'1'; 300]).is_err());
        let mut trailers = b"0\r\n".to_vec();
        trailers.extend(b"A: b\r\n".repeat(2000));
        assert!(all(Framing::Chunked, &trailers).is_err(), "trailers have an end");
    }

    proptest! {
        /// However it is split and chunked, the same bytes come out, and none after the end.
        #[test]
        fn splits_change_nothing(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8), cut in 1..7_usize,
            after in prop::collection::vec(any::<u8>(), 0..10),
        ) {
            let mut input: Vec<u8> = Vec::new();
            for part in &parts {
                input.extend(format!("{:x}\r\n", part.len()).into_bytes());
                input.extend(part);
                input.extend(b"\r\n");
            }
            input.extend(b"0\r\n\r\n");
            let expected = input.clone();
            input.extend(&after);
            let (mut body, mut out, mut taken) = (Body::new(Framing::Chunked), Vec::new(), 0);
            for part in input.chunks(cut) {
                taken += body.feed(part, &mut out).unwrap();
            }
            prop_assert!(body.is_done());
            prop_assert_eq!(taken, expected.len());
            prop_assert_eq!(out, expected);
        }

        #[test]
        fn never_panics(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(Framing::Chunked, &input);
        }
    }
}
