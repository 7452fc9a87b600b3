//! The frames: a byte that says what it is, four that say how long, big end first, and as many.
//!
//! Hostile bytes. Must never keep more than one frame, and never wait for one that is too long.

/// Bytes before a frame's payload.
pub const HEADER_BYTES: usize = 5;
/// Longest payload of any frame: a request with all its words and variables, written as JSON.
pub const MOST_PAYLOAD: usize = 1024 * 1024;
/// Longest payload of a frame that carries data or the agent's words.
pub const MOST_DATA: usize = 64 * 1024;
/// Longest payload that tells of a file: a path whose bytes all have to be escaped, and a few numbers.
const MOST_ENTRY: usize = 32 * 1024;

/// What a frame is. The agent's own are below 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Agent: the challenge.
    Nonce = 1,
    /// Agent: the command runs.
    Started = 2,
    /// Agent: output, or what a file holds.
    Stdout = 3,
    /// Agent: error output.
    Stderr = 4,
    /// Agent: a [`super::CallResult`] or a [`super::FileResult`]; nothing follows.
    Result = 5,
    /// Agent: a [`super::Refusal`]; nothing follows.
    Refused = 6,
    /// Agent: a [`super::FileEntry`].
    Entry = 7,
    /// Session: a signature and an [`super::Exec`].
    Open = 16,
    /// Session: bytes for standard input or a file; none of them is their end.
    Stdin = 17,
    /// Session: a signal's number, one byte, for the command's process group.
    Signal = 18,
    /// Session: the terminal's lines and characters a line, two bytes each, big end first.
    Resize = 19,
    /// Session: a signature and a [`super::FileRequest`].
    OpenFile = 20,
}

impl Kind {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Nonce,
            2 => Self::Started,
            3 => Self::Stdout,
            4 => Self::Stderr,
            5 => Self::Result,
            6 => Self::Refused,
            7 => Self::Entry,
            16 => Self::Open,
            17 => Self::Stdin,
            18 => Self::Signal,
            19 => Self::Resize,
            20 => Self::OpenFile,
            _ => return None,
        })
    }

    /// The lengths that its payload may have.
    const fn lengths(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Self::Nonce => super::NONCE_BYTES..=super::NONCE_BYTES,
            Self::Started => 0..=0,
            Self::Stdout | Self::Stderr => 1..=MOST_DATA,
            Self::Result | Self::Refused => 1..=4096,
            Self::Entry => 1..=MOST_ENTRY,
            Self::Open | Self::OpenFile => super::SIGNATURE_BYTES + 1..=MOST_PAYLOAD,
            Self::Stdin => 0..=MOST_DATA,
            Self::Signal => 1..=1,
            Self::Resize => 4..=4,
        }
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// Why bytes are no frame. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// There is no such kind.
    UnknownKind,
    /// Its kind is never so long or so short.
    WrongLength,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnknownKind => "a frame of an unknown kind",
            Self::WrongLength => "a frame of a wrong length",
        })
    }
}

impl std::error::Error for FrameError {}

/// What stands before a payload of this length.
///
/// # Errors
/// When a frame of this kind never has such a payload.
pub fn header(kind: Kind, length: usize) -> Result<[u8; HEADER_BYTES], FrameError> {
    let known = u32::try_from(length).ok().filter(|_| kind.lengths().contains(&length));
    let [a, b, c, d] = known.ok_or(FrameError::WrongLength)?.to_be_bytes();
    Ok([kind as u8, a, b, c, d])
}

/// Takes frames out of bytes that come in any pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Where what is not yet taken begins. Moved at each feeding only: moved at each frame, small ones would cost their square.
    at: usize,
}

impl Decoder {
    /// Takes what came. It is kept until it is asked for: whoever feeds asks for all frames before the next feeding.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// When what came can't become one.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after what is no frame")]
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let left = self.left();
        let Some((&[kind, a, b, c, d], rest)) = left.split_first_chunk() else {
            // A wrong kind is seen at its first byte, not waited for.
            let known = left.first().is_none_or(|byte| Kind::of(*byte).is_some());
            return if known { Ok(None) } else { Err(FrameError::UnknownKind) };
        };
        let kind = Kind::of(kind).ok_or(FrameError::UnknownKind)?;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if !kind.lengths().contains(&length) {
            return Err(FrameError::WrongLength);
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = Frame { kind, payload: payload.to_vec() };
        self.at += HEADER_BYTES + length;
        Ok(Some(frame))
    }

    /// What the frame will be that is not whole yet: whoever must not send it need not be heard to its end.
    #[must_use]
    pub fn awaited(&self) -> Option<Kind> {
        self.left().first().copied().and_then(Kind::of)
    }

    /// Whether nothing is kept: an end here is one between frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    /// What was fed and not yet taken, for another decoder to go on with.
    #[must_use]
    pub fn left(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}
