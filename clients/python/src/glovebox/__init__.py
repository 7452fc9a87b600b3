"""Ephemeral, fenced sandboxes for AI agents: make one, have commands run in it, move files.

    from glovebox import Sandbox

    with Sandbox.create(image="python:3.14-slim") as sandbox:
        print(sandbox.exec(["python", "-c", "print(6 * 7)"], timeout="10s").stdout)

Whatever a sandbox says, such as output, names and messages, is not to be trusted.
"""

from ._async_sandbox import AsyncFiles, AsyncSandbox
from ._calls import Access
from ._errors import (
    AgentFailed,
    AlreadyExists,
    ApiError,
    ArchiveRefused,
    Busy,
    CallFailed,
    CallLost,
    ConfigError,
    ConnectionLost,
    DeadlineMissed,
    Ended,
    FileConflict,
    Forbidden,
    GloveboxError,
    InvalidRequest,
    NoSpace,
    NoSuchFile,
    NotFound,
    NotReady,
    PathRefused,
    ProtocolError,
    StartTimeout,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from ._models import FileDone, FileInfo, FileList, SandboxStatus
from ._results import Event, ExecResult, Result, Stderr, Stdout
from ._sandbox import Files, Sandbox
from ._session import Session

__all__ = [
    "Access",
    "AgentFailed",
    "AlreadyExists",
    "ApiError",
    "ArchiveRefused",
    "AsyncFiles",
    "AsyncSandbox",
    "Busy",
    "CallFailed",
    "CallLost",
    "ConfigError",
    "ConnectionLost",
    "DeadlineMissed",
    "Ended",
    "Event",
    "ExecResult",
    "FileConflict",
    "FileDone",
    "FileInfo",
    "FileList",
    "Files",
    "Forbidden",
    "GloveboxError",
    "InvalidRequest",
    "NoSpace",
    "NoSuchFile",
    "NotFound",
    "NotReady",
    "PathRefused",
    "ProtocolError",
    "Result",
    "Sandbox",
    "SandboxStatus",
    "Session",
    "StartTimeout",
    "Stderr",
    "Stdout",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
]
