//! A sandbox with a workspace, and a session that asks for its files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ed25519_dalek::Signer;
use glovebox::call::{
    FileEntry, FileOperation, FileReason, FileRequest, FileResult, Kind, Refusal, signed_file,
};

use crate::container::Recipe;
use crate::session::{Call, Sandbox, UID, key};

/// Replaces what is there.
pub(crate) const WRITE: FileOperation = FileOperation::Write { mode: None, parents: false, replace: true };

/// A sandbox, its workspace, and a file beside it that nobody must get at.
pub(crate) struct Workspace {
    pub(crate) sandbox: Sandbox,
    pub(crate) path: PathBuf,
}

/// What came of an operation.
#[derive(Debug)]
pub(crate) struct Done {
    /// With what each holds.
    pub(crate) files: Vec<(FileEntry, Vec<u8>)>,
    pub(crate) result: FileResult,
}

/// What must never be read.
pub(crate) const SECRET: &str = "what stands outside";

impl Workspace {
    pub(crate) fn new(script: Option<&str>) -> Self {
        let recipe = Recipe::new();
        recipe.scratch().file("outside", SECRET, 0o666);
        let path = recipe.scratch().path().join("w");
        for directory in [&path, &path.parent().unwrap().join("beside")] {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::write(path.parent().unwrap().join("beside/f"), SECRET).unwrap();
        let recipe = recipe.option("--calls-workspace", path.to_str().unwrap());
        let sandbox = match script {
            Some(script) => Sandbox::shell(recipe, &format!("cd {}; {script}", path.display())),
            None => Sandbox::idle(recipe),
        };
        Self { sandbox, path }
    }

    /// A file that everybody may change, made from outside.
    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }

    pub(crate) fn link(&self, name: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.path.join(name)).unwrap();
    }

    /// All names below the workspace, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut ask = vec![self.path.clone()];
        while let Some(directory) = ask.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                found.push(entry.path().strip_prefix(&self.path).unwrap().to_str().unwrap().to_owned());
                if entry.file_type().unwrap().is_dir() {
                    ask.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }

    pub(crate) fn open(&self, request: &FileRequest) -> Call {
        Call::open_file(self.sandbox.connect(), request)
    }

    /// From its beginning to its end, with what is to be written in pieces.
    pub(crate) fn run(&self, request: &FileRequest, pieces: &[&[u8]]) -> Done {
        let mut call = self.open(request);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            for chunk in piece.chunks(64 * 1024) {
                // Whoever is refused early does not hear the rest.
                if !call.try_send(Kind::Stdin, chunk) {
                    break;
                }
            }
        }
        call.try_send(Kind::Stdin, &[]);
        done(call)
    }

    pub(crate) fn ask(&self, operation: FileOperation, path: &str) -> Done {
        self.run(&request(operation, path), &[])
    }

    pub(crate) fn write(&self, path: &str, content: &[u8]) -> Done {
        self.run(&request(WRITE, path), &[content])
    }

    /// What a file holds.
    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, FileReason> {
        let mut done = self.ask(FileOperation::Read, path);
        match done.result.failure {
            Some(failure) => {
                let text = format!("{:?}", done.files);
                assert!(!text.contains(SECRET), "{text}");
                Err(failure.reason)
            }
            None => Ok(done.files.pop().unwrap().1),
        }
    }

    pub(crate) fn refusal(&self, operation: FileOperation, path: &str) -> FileReason {
        let done = self.ask(operation, path);
        done.reason().unwrap_or_else(|| panic!("{operation:?} of {path:?}: {done:?}"))
    }
}

impl Done {
    pub(crate) fn reason(&self) -> Option<FileReason> {
        self.result.failure.as_ref().map(|failure| failure.reason)
    }

    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.result.failure, None, "{:?}", self.result);
        self
    }
}

pub(crate) fn request(operation: FileOperation, path: &str) -> FileRequest {
    FileRequest {
        id: "file-1".into(),
        path: path.into(),
        operation,
        timeout_ms: 50_000,
        max_bytes: 64 << 20,
        max_entries: 1000,
    }
}

/// The rest of what is told.
pub(crate) fn done(mut call: Call) -> Done {
    let mut files: Vec<(FileEntry, Vec<u8>)> = Vec::new();
    loop {
        let frame = call.frame();
        match frame.kind {
            Kind::Entry => files.push((serde_json::from_slice(&frame.payload).unwrap(), Vec::new())),
            Kind::Stdout => files.last_mut().expect("what holds it is told first").1.extend(frame.payload),
            Kind::Result => {
                let result = serde_json::from_slice(&frame.payload).unwrap();
                return Done { files, result };
            }
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&frame.payload)),
        }
    }
}

/// A request as bytes, signed as a file operation for a sandbox.
pub(crate) fn signed_request(nonce: &[u8; 32], request: &FileRequest) -> Vec<u8> {
    let text = serde_json::to_vec(request).unwrap();
    let signature = key(1).sign(&signed_file(UID, nonce, &text)).to_bytes();
    [&signature[..], &text].concat()
}

#[test]
fn without_a_workspace_no_file_is_touched() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut call = Call::open_file(sandbox.connect(), &request(FileOperation::Stat, ""));
    assert_eq!(call.refusal(), Refusal::NoFiles);
}
