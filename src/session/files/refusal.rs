//! What a client is told when the agent did not do it: what is in the way, and what to do next.

use crate::{
    call::{FileFailure, FileOperation, FileReason, FileRequest},
    session::problem::{Problem, Reason},
};

/// The words of a failure. The path is the client's own; what the agent names besides is quoted.
pub(super) fn problem(request: &FileRequest, failure: &FileFailure) -> Problem {
    let (reason, what) = words(failure.reason, request);
    let path = if request.path.is_empty() { "the workspace" } else { &request.path };
    let message = match (&failure.at, request.operation) {
        (Some(at), FileOperation::Unpack) => format!("the archive's entry {at:?}: {what}"),
        (Some(at), _) => format!("{path}, at {at:?}: {what}"),
        (None, _) => format!("{path}: {what}"),
    };
    Problem::new(reason, message)
}

fn words(why: FileReason, request: &FileRequest) -> (Reason, String) {
    let what = match why {
        FileReason::TooBig => {
            let most = request.max_bytes;
            format!("it has more than the {most} bytes that are carried at once; take it in parts")
        }
        FileReason::TooMany => {
            let most = request.max_entries;
            format!("there are more than {most} files and directories; take it in parts")
        }
        _ => advice(why).to_owned(),
    };
    (reason(why), what)
}

const fn reason(why: FileReason) -> Reason {
    match why {
        FileReason::NotFound => Reason::NoSuchFile,
        FileReason::IsADirectory
        | FileReason::NotADirectory
        | FileReason::Exists
        | FileReason::NotEmpty
        | FileReason::Changed => Reason::FileConflict,
        FileReason::NotRegular
        | FileReason::LinkRefused
        | FileReason::ReadOnly
        | FileReason::Denied
        | FileReason::NameTooLong
        | FileReason::TooDeep
        | FileReason::NotText => Reason::PathRefused,
        FileReason::TooBig | FileReason::TooMany => Reason::TooLarge,
        FileReason::NoSpace => Reason::NoSpace,
        FileReason::BadArchive | FileReason::EntryRefused => Reason::ArchiveRefused,
        FileReason::DeadlineExceeded => Reason::DeadlineExceeded,
        FileReason::NoResources => Reason::SandboxBusy,
        FileReason::Failed => Reason::AgentFailed,
    }
}

const fn advice(why: FileReason) -> &'static str {
    match why {
        FileReason::NotFound => "there is nothing of this name; list its directory to see what is there",
        FileReason::IsADirectory => "this is a directory; list it, or take it as an archive",
        FileReason::NotADirectory => "this, or something on the way to it, is no directory",
        FileReason::NotRegular => {
            "this is no ordinary file but a link, a FIFO, a socket or a device, which is neither read nor written here"
        }
        FileReason::LinkRefused => {
            "a link leads out of the workspace, is absolute, or leads in a ring; name the file itself"
        }
        FileReason::ReadOnly => {
            "this is protected, part of a read-only input, or where something is mounted: it stays as it is"
        }
        FileReason::Denied => {
            "the sandbox's user may not; have a command change the permissions, if they are its own"
        }
        FileReason::Exists => "there is something already, and it was not to be replaced",
        FileReason::NotEmpty => "the directory is not empty; say recursive=true to remove what is in it",
        FileReason::NameTooLong => "a name is longer than the file system takes: at most 255 bytes",
        FileReason::TooDeep => "directories lie deeper in each other than is gone: 200",
        FileReason::TooBig | FileReason::TooMany => "it is more than is carried at once; take it in parts",
        FileReason::NoSpace => "the workspace is full; remove something, or ask for a bigger one",
        FileReason::Changed => "something else changed it at the same time; try again",
        FileReason::NotText => {
            "it has a name that is no UTF-8; have a command rename it, or leave its directory out"
        }
        FileReason::BadArchive => {
            "this is no whole tar archive; send one that is not compressed. What came before it was written"
        }
        FileReason::EntryRefused => {
            "its path leads out, or it is no file and no directory; leave it out. What came before it was written"
        }
        FileReason::DeadlineExceeded => "it was not done in its time; ask for more by timeout, or for less",
        FileReason::NoResources => "the sandbox has no memory or file left for it; end some, or try again",
        FileReason::Failed => "the sandbox's kernel refused it; look at the file by a command",
    }
}
