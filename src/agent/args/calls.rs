//! The options that say where calls come in, and whose.

use std::net::SocketAddr;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::VerifyingKey;

use super::words::{Words, push, wrong};
use crate::agent::fault::Fault;
use crate::call::KEY_BYTES;

/// How many calls may run at once whatever calls say: each is a process and a few pipes.
const MOST: usize = 1024;
/// Longest uid, in bytes. Kubernetes gives 36.
const MOST_UID_BYTES: usize = 64;

/// Where calls come in, and whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallsArgs {
    /// The port.
    pub listen: SocketAddr,
    /// The sandbox's own, for which a call must be signed.
    pub uid: String,
    /// Whose signature counts; at least one.
    pub keys: Vec<VerifyingKey>,
    /// How many may run at once, whatever a call says.
    pub most: usize,
    /// The workspace, whose files may be touched; without it none may.
    pub workspace: Option<PathBuf>,
}

/// What was given so far.
#[derive(Debug, Default)]
pub(super) struct Options {
    listen: Option<SocketAddr>,
    uid: Option<String>,
    keys: Vec<VerifyingKey>,
    most: Option<usize>,
    workspace: Option<PathBuf>,
}

impl Options {
    /// Takes one option, if it is one of these.
    pub(super) fn take(&mut self, option: &str, words: &mut Words) -> Result<bool, Fault> {
        match option {
            "--calls-listen" => self.listen = Some(words.address(option)?),
            "--calls-uid" => {
                let value = words.value(option)?;
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                let uid = value.to_str().filter(|uid| (1..=MOST_UID_BYTES).contains(&uid.len()));
                let uid = uid.filter(|uid| uid.bytes().all(plain));
                let expected = "1 to 64 letters, digits and -";
                self.uid = Some(uid.ok_or_else(|| wrong(option, &value, expected))?.to_owned());
            }
            "--calls-key" => {
                let value = words.value(option)?;
                let key = value
                    .to_str()
                    .and_then(key)
                    .ok_or_else(|| wrong(option, &value, "an Ed25519 public key as base64, 44 characters"))?;
                push(&mut self.keys, option, key)?;
            }
            "--calls-workspace" => self.workspace = Some(words.absolute(option)?),
            "--calls-most" => self.most = Some(words.number(option, 1..=MOST)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// All, or none: a port without a key would be open to nobody or, worse, to everybody.
    pub(super) fn whole(self) -> Result<Option<CallsArgs>, Fault> {
        match (self.listen, self.uid, self.keys) {
            (Some(listen), Some(uid), keys) if !keys.is_empty() => {
                let most = self.most.unwrap_or(MOST);
                Ok(Some(CallsArgs { listen, uid, keys, most, workspace: self.workspace }))
            }
            (None, None, keys) if keys.is_empty() && self.most.is_none() && self.workspace.is_none() => {
                Ok(None)
            }
            _ => Err(Fault::usage("--calls-listen, --calls-uid and --calls-key go together")),
        }
    }
}

/// A key for which signatures can't be made up by anybody.
fn key(text: &str) -> Option<VerifyingKey> {
    let mut bytes = [0; KEY_BYTES];
    // The decoder's estimate of the length may be above it, for which it wants room.
    let mut room = [0; KEY_BYTES + 1];
    let length = STANDARD.decode_slice(text, &mut room).ok()?;
    bytes.copy_from_slice(room.get(..length).filter(|key| key.len() == KEY_BYTES)?);
    VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak())
}
