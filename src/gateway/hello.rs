//! The first message of TLS: whom does it ask for? Nothing is answered and nothing is decrypted.
//!
//! Hostile bytes. Must never hand out a name of a hello that was not read whole.

use rustls::server::Acceptor;

/// Most bytes of a hello, padding and post-quantum keys included.
pub const MOST_BYTES: usize = 64 * 1024;

/// Fatal alert `access_denied`: the refusal that a TLS client understands.
pub const ACCESS_DENIED: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];
/// Fatal alert `internal_error`: allowed, and yet not reached.
pub const INTERNAL_ERROR: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 80];

/// First byte of a TLS record that carries a handshake.
const HANDSHAKE: u8 = 0x16;

/// Why this is no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The first byte is not TLS's.
    #[error("not TLS")]
    NotTls,
    /// It began as TLS, and is none.
    #[error("malformed TLS")]
    Malformed,
    /// More than [`MOST_BYTES`].
    #[error("the TLS hello is longer than 64 KiB")]
    TooLong,
}

/// A hello as far as it has come.
#[derive(Default)]
pub struct Peek {
    acceptor: Acceptor,
    hello: Hello,
    /// How many of its bytes were looked at.
    seen: usize,
}

/// What a hello says, and all bytes that came, to be passed on as they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The name asked for. An address is not a name, so it is none.
    pub server_name: Option<Box<str>>,
    /// Everything read so far.
    pub bytes: Vec<u8>,
}

impl Peek {
    /// Takes what came next. Whether the hello is whole.
    ///
    /// # Errors
    /// When this can't become a hello.
    pub fn feed(&mut self, more: &[u8]) -> Result<bool, HelloError> {
        self.room().extend_from_slice(more);
        self.look()
    }

    /// Where what comes next is put, after what came before; then it is to be looked at.
    pub const fn room(&mut self) -> &mut Vec<u8> {
        &mut self.hello.bytes
    }

    /// Looks at what was put there. Whether the hello is whole.
    ///
    /// # Errors
    /// When this can't become a hello.
    pub fn look(&mut self) -> Result<bool, HelloError> {
        if self.hello.bytes.first().is_some_and(|first| *first != HANDSHAKE) {
            return Err(HelloError::NotTls);
        }
        while let Some(mut more @ [_, ..]) = self.hello.bytes.get(self.seen..) {
            let read = self.acceptor.read_tls(&mut more).map_err(|_| HelloError::TooLong)?;
            self.seen += read;
            match self.acceptor.accept() {
                Ok(Some(accepted)) => {
                    self.hello.server_name = accepted.client_hello().server_name().map(Into::into);
                    return Ok(true);
                }
                Ok(None) if read == 0 => return Err(HelloError::TooLong),
                Ok(None) => {}
                // The alert that rustls would send is not ours to send: each refusal looks the same from outside.
                Err(_) => return Err(HelloError::Malformed),
            }
        }
        if self.buffered() > MOST_BYTES { Err(HelloError::TooLong) } else { Ok(false) }
    }

    /// How many bytes came so far.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.hello.bytes.len()
    }

    /// What came. Until it is whole it names nobody.
    #[must_use]
    pub fn into_hello(self) -> Hello {
        self.hello
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TLS 1.2 hello by hand: `server_name` raw, then padding.
    fn hello(name: Option<(&[u8], u8)>, padding: usize) -> Vec<u8> {
        let mut extensions = Vec::new();
        let mut extension = |kind: u16, body: &[u8]| {
            extensions.extend(kind.to_be_bytes());
            extensions.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
            extensions.extend(body);
        };
        if let Some((name, kind)) = name {
            let length = u16::try_from(name.len()).unwrap();
            let mut body = (length + 3).to_be_bytes().to_vec();
            body.push(kind);
            body.extend(length.to_be_bytes());
            body.extend(name);
            extension(0, &body);
        }
        extension(13, &[0, 2, 4, 3]);
        extension(0x0a0a, &[]);
        if padding > 0 {
            extension(21, &vec![0; padding]);
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let mut message = vec![1];
        message.extend(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
        message.extend(body);
        message
            .chunks(16_000)
            .flat_map(|part| {
                let mut record = vec![0x16, 3, 1];
                record.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
                record.extend(part);
                record
            })
            .collect()
    }

    /// Nothing while it is not whole.
    fn whole(bytes: &[u8]) -> Result<Option<Hello>, HelloError> {
        let mut peek = Peek::default();
        Ok(if peek.feed(bytes)? { Some(peek.into_hello()) } else { None })
    }

    #[test]
    fn reads_the_name_however_it_is_split() {
        let bytes = hello(Some((b"api.example.com", 0)), 0);
        assert_eq!(whole(&bytes).unwrap().unwrap().server_name.as_deref(), Some("api.example.com"));
        let mut peek = Peek::default();
        for (at, byte) in bytes.iter().enumerate() {
            let read = peek.feed(&[*byte]).unwrap();
            assert_eq!(read, at + 1 == bytes.len(), "{at}");
        }
        assert_eq!(peek.into_hello().bytes, bytes, "not a byte is lost");
    }

    #[test]
    fn what_follows_is_kept() {
        let mut bytes = hello(Some((b"a.example.com", 0)), 0);
        bytes.extend(b"early data");
        let mut peek = Peek::default();
        assert!(peek.feed(&bytes).unwrap());
        assert_eq!(peek.into_hello().bytes, bytes);
    }

    #[test]
    fn a_large_hello_is_read_and_a_larger_one_is_not() {
        let large = hello(Some((b"a.example.com", 0)), 60 * 1024);
        assert!(large.len() > 60 * 1024);
        assert!(whole(&large).unwrap().is_some());
        let mut endless = vec![0x16, 3, 1, 0x3f, 0xff, 1, 0xff, 0xff, 0xff];
        endless.resize(16_388, 0);
        let mut peek = Peek::default();
        let refused = (0..10).find_map(|_| peek.feed(&endless).err());
        assert!(refused.is_some(), "a hello of 16 MiB is not waited for");
        assert!(peek.buffered() <= MOST_BYTES + endless.len());
    }

    #[test]
    fn no_name_is_none_and_an_address_is_no_name() {
        assert_eq!(whole(&hello(None, 0)).unwrap().unwrap().server_name, None);
        assert_eq!(whole(&hello(Some((b"192.0.2.1", 0)), 0)).unwrap().unwrap().server_name, None);
    }

    #[test]
    fn what_is_no_host_name_is_malformed() {
        for byte in (0..=255_u8).filter(|byte| !byte.is_ascii_alphanumeric() && !b"-_.".contains(byte)) {
            let name = [b'a', byte, b'b', b'.', b'c', b'o', b'm'];
            assert_eq!(whole(&hello(Some((&name, 0)), 0)), Err(HelloError::Malformed), "byte {byte}");
        }
        for name in [b"".as_slice(), b".", b"a..com", &[b'a'; 300]] {
            let named = whole(&hello(Some((name, 0)), 0)).ok().flatten().and_then(|hello| hello.server_name);
            assert_eq!(named, None);
        }
    }

    #[test]
    fn other_protocols_are_seen_at_the_first_byte() {
        for bytes in [b"S".as_slice(), b"GET / HTTP/1.1\r\n", b"SSH-2.0-x", &[0x15, 3, 3], &[0x80, 0x2e]] {
            assert_eq!(whole(bytes), Err(HelloError::NotTls));
        }
        assert_eq!(whole(&[0x16, b'x', b'y', b'z', 0, 1]), Err(HelloError::Malformed));
    }
}
