//! A session as these tests need one: it signs with a key of its own, and reads what the agent says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use glovebox::call::{
    Access, CallResult, Decoder, Exec, FileRequest, Frame, Kind, NONCE_BYTES, OnHangup, Refusal, header,
    signed,
};

use crate::container::{Container, Recipe, eventually};
use crate::workspace::signed_request;

/// The sandbox's uid.
pub(crate) const UID: &str = "0d9e2f6c-1b6b-4a43-9d6e-6f2f0c9a51aa";
/// After which the agent lets go whoever has not said who it is.
const OPENING: Duration = Duration::from_secs(5);
/// Longest wait for a frame.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

pub(crate) fn public(key: &SigningKey) -> String {
    STANDARD.encode(key.verifying_key().to_bytes())
}

/// An address that no other test has: all of 127.0.0.0/8 is this machine.
fn address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 | a & 0x3f, b, c], 7000 + u16::from(NEXT.fetch_add(1, Ordering::Relaxed))))
}

/// A sandbox that takes calls.
pub(crate) struct Sandbox {
    pub(crate) container: Container,
    pub(crate) address: SocketAddr,
}

impl Sandbox {
    /// Without a workload.
    pub(crate) fn idle(recipe: Recipe) -> Self {
        let (recipe, address) = listening(recipe);
        Self { container: recipe.idle(), address }
    }

    /// With a shell script as its workload.
    pub(crate) fn shell(recipe: Recipe, script: &str) -> Self {
        let (recipe, address) = listening(recipe);
        Self { container: recipe.shell(script), address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = eventually("the port is open", || TcpStream::connect(self.address).ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A call that was admitted.
    pub(crate) fn call(&self, exec: &Exec) -> Call {
        let start = Instant::now();
        let mut call = Call::open(self.connect(), &key(1), UID, exec);
        let Some(frame) = call.try_frame() else {
            // On a machine that does much else, this test itself may have been too slow.
            assert!(start.elapsed() > OPENING, "the agent hung up after {:?}", start.elapsed());
            return self.call(exec);
        };
        match frame.kind {
            Kind::Started => {}
            Kind::Result => call.early = Some(frame),
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&frame.payload)),
        }
        call
    }

    /// A call from its beginning to its end.
    pub(crate) fn run(&self, exec: &Exec) -> Ended {
        self.call(exec).end()
    }
}

pub(crate) fn listening(recipe: Recipe) -> (Recipe, SocketAddr) {
    let address = address();
    let recipe = recipe
        .option("--calls-listen", &address.to_string())
        .option("--calls-uid", UID)
        .option("--calls-key", &public(&key(2)))
        .option("--calls-key", &public(&key(1)));
    (recipe, address)
}

/// A command for a shell.
pub(crate) fn shell(script: &str) -> Exec {
    command(&["sh", "-c", script])
}

pub(crate) fn command(words: &[&str]) -> Exec {
    Exec {
        id: "call-1".into(),
        command: words.iter().map(ToString::to_string).collect(),
        env: [].into(),
        cwd: None,
        stdin: false,
        terminal: None,
        timeout_ms: 50_000,
        max_output_bytes: 1 << 20,
        max_concurrent: None,
        on_hangup: OnHangup::Kill,
        access: None,
    }
}

pub(crate) fn access(write: Option<&[&str]>, network: bool) -> Access {
    let write = write.map(|paths| paths.iter().map(ToString::to_string).collect());
    Access { write, network }
}

fn framed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    [&header(kind, payload.len()).unwrap()[..], payload].concat()
}

/// One connection.
pub(crate) struct Call {
    pub(crate) stream: TcpStream,
    decoder: Decoder,
    early: Option<Frame>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) result: CallResult,
}

impl Call {
    /// Answers the challenge.
    pub(crate) fn open(stream: TcpStream, key: &SigningKey, uid: &str, exec: &Exec) -> Self {
        Self::open_and(stream, key, uid, exec, &[])
    }

    /// The same, and says more in the same breath.
    pub(crate) fn open_and(
        stream: TcpStream,
        key: &SigningKey,
        uid: &str,
        exec: &Exec,
        more: &[(Kind, &[u8])],
    ) -> Self {
        let mut call = Self { stream, decoder: Decoder::default(), early: None };
        let nonce = call.nonce();
        let request = serde_json::to_vec(exec).unwrap();
        let signature = key.sign(&signed(uid, &nonce, &request)).to_bytes();
        let mut said = framed(Kind::Open, &[&signature[..], &request].concat());
        said.extend(more.iter().flat_map(|(kind, payload)| framed(*kind, payload)));
        call.stream.write_all(&said).unwrap();
        call
    }

    /// The same for a file operation.
    pub(crate) fn open_file(stream: TcpStream, request: &FileRequest) -> Self {
        let mut call = Self::silent(stream);
        let nonce = call.nonce();
        call.send(Kind::OpenFile, &signed_request(&nonce, request));
        call
    }

    /// A connection that has said nothing.
    pub(crate) fn silent(stream: TcpStream) -> Self {
        Self { stream, decoder: Decoder::default(), early: None }
    }

    pub(crate) fn nonce(&mut self) -> [u8; NONCE_BYTES] {
        let frame = self.frame();
        assert_eq!(frame.kind, Kind::Nonce);
        frame.payload.try_into().unwrap()
    }

    pub(crate) fn send(&mut self, kind: Kind, payload: &[u8]) {
        self.stream.write_all(&framed(kind, payload)).unwrap();
    }

    /// Whether there was somebody to hear it.
    pub(crate) fn try_send(&mut self, kind: Kind, payload: &[u8]) -> bool {
        self.stream.write_all(&framed(kind, payload)).is_ok()
    }

    /// The next frame, or none where the agent hung up.
    pub(crate) fn try_frame(&mut self) -> Option<Frame> {
        if let Some(frame) = self.early.take() {
            return Some(frame);
        }
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some(frame);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(length) => self.decoder.feed(&chunk[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing within {PATIENCE:?}: {error}"),
            }
        }
    }

    pub(crate) fn frame(&mut self) -> Frame {
        self.try_frame().expect("the agent hung up")
    }

    /// Output until `text` has been seen in it.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let frame = self.frame();
            assert_eq!(frame.kind, Kind::Stdout, "{seen:?} {:?}", String::from_utf8_lossy(&frame.payload));
            seen.push_str(&String::from_utf8_lossy(&frame.payload));
        }
        seen
    }

    pub(crate) fn refusal(&mut self) -> Refusal {
        let frame = self.frame();
        assert_eq!(frame.kind, Kind::Refused, "{frame:?}");
        serde_json::from_slice(&frame.payload).unwrap()
    }

    /// The rest of the output and the result.
    pub(crate) fn end(mut self) -> Ended {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let frame = self.frame();
            match frame.kind {
                Kind::Stdout => stdout.extend(frame.payload),
                Kind::Stderr => stderr.extend(frame.payload),
                Kind::Result => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let result = serde_json::from_slice(&frame.payload).unwrap();
                    assert_eq!(self.try_frame(), None, "nothing follows");
                    return Ended { stdout: text(&stdout), stderr: text(&stderr), result };
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
