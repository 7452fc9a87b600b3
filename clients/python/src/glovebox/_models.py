# Generated from docs/openapi.json by generate.py. Not to be edited.

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType


class Access(BaseModel):
    """
    Limits of a single call.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    network: bool | None = True
    """
    Whether it may open sockets to anything but its own kernel.
    """
    write: Annotated[list[str] | None, Field(max_length=64)] = None
    """
    Where it may write: absolute paths; an empty list means nowhere. Absent: wherever the sandbox lets it.
    """


class ExecLine1(BaseModel):
    """
    Standard output that is UTF-8.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    stdout: str


class ExecLine2(BaseModel):
    """
    Standard output that is not.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    stdout_base64: Annotated[str, Field(alias="stdoutBase64")]


class ExecLine3(BaseModel):
    """
    Standard error that is UTF-8.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    stderr: str


class ExecLine4(BaseModel):
    """
    Standard error that is not.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    stderr_base64: Annotated[str, Field(alias="stderrBase64")]


MaxOutputBytes = TypeAliasType(
    "MaxOutputBytes",
    Annotated[str, Field(pattern="^[0-9]{1,15}(\\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")],
)
"""
How much output is handed over, of both streams together: bytes, or a quantity such as `1Mi`. What comes beyond is counted
and dropped. Absent: the default.
"""


class FileDone(BaseModel):
    """
    What was done.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    bytes: Annotated[int, Field(ge=0)]
    """
    Bytes that were written.
    """
    entries: Annotated[int, Field(ge=0)]
    """
    Files and directories that were written or removed.
    """
    id: str
    """
    The operation, as logs and audit records name it.
    """


FileKind = TypeAliasType("FileKind", Literal["File", "Directory", "Symlink", "Other"])
"""
What something is.
"""


Held = TypeAliasType("Held", Literal["Enforced", "NotEnforced"])
"""
Whether what a call asked to be held to was enforced.
"""


OnHangup = TypeAliasType("OnHangup", Literal["Kill", "Keep"])
"""
What becomes of a call when the client hangs up.
"""


Outcome = TypeAliasType(
    "Outcome", Literal["Exited", "Signalled", "DeadlineExceeded", "HungUp", "ShutDown", "NotStarted"]
)
"""
How a call ended.
"""


Phase = TypeAliasType("Phase", Literal["Pending", "Starting", "Running", "Succeeded", "Failed", "Expired"])
"""
A summary of the conditions.
"""


Reason = TypeAliasType(
    "Reason",
    Literal[
        "InvalidRequest",
        "Unauthenticated",
        "Forbidden",
        "NoSuchPath",
        "MethodNotAllowed",
        "NotFound",
        "NoSuchFile",
        "TooSlow",
        "DeadlineExceeded",
        "NotReady",
        "ResultNotKept",
        "FileConflict",
        "Ended",
        "TooLarge",
        "NotJson",
        "KeyReused",
        "PathRefused",
        "ArchiveRefused",
        "TooManyCalls",
        "SandboxBusy",
        "Internal",
        "AgentFailed",
        "CallLost",
        "ApiUnavailable",
        "NotRecorded",
        "AgentUnreachable",
        "ShuttingDown",
        "DeadlineMissed",
        "NoSpace",
    ],
)
"""
Why a request is not carried out.
"""


class SandboxStatus(BaseModel):
    """
    Where a sandbox stands.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    ends_at: Annotated[str | None, Field(alias="endsAt")] = None
    """
    When its time to live is over.
    """
    exit_code: Annotated[int | None, Field(alias="exitCode")] = None
    """
    The exit code of its workload, if that ended.
    """
    message: str
    """
    Why it is as it is.
    """
    name: str
    """
    Its name.
    """
    namespace: str
    """
    Its namespace.
    """
    phase: Phase
    """
    A summary.
    """
    reached: bool | None = None
    """
    Of a wait: whether what was waited for came before the time was over.
    """
    ready: bool
    """
    Whether it takes calls.
    """
    reason: str | None = None
    """
    Why it is as it is, in one word.
    """
    uid: str
    """
    Its uid: another sandbox of the same name has another.
    """


class Terminal(BaseModel):
    """
    A terminal's size, in characters.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    columns: Annotated[int, Field(ge=0, le=65535)]
    """
    Characters a line.
    """
    rows: Annotated[int, Field(ge=0, le=65535)]
    """
    Lines.
    """


WaitFor = TypeAliasType("WaitFor", Literal["Ready", "Finished"])
"""
What is waited for.
"""


class ExecAnswer(BaseModel):
    """
    A call's result with all of its output.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    duration_ms: Annotated[int, Field(alias="durationMs", ge=0)]
    """
    From the start of the command to the end of all that it had started.
    """
    exit_code: Annotated[int | None, Field(alias="exitCode", ge=0, le=255)] = None
    """
    With the outcome Exited; 126 or 127 where it was not started.
    """
    id: str
    """
    The call, as logs and audit records name it.
    """
    message: str | None = None
    """
    Why it did not start.
    """
    network: Held | None = None
    """
    Whether `access.network: false` was held, where it was asked for.
    """
    outcome: Outcome
    """
    How it ended.
    """
    signal: Annotated[int | None, Field(ge=0, le=255)] = None
    """
    The number of the signal that ended the command, if one did.
    """
    stderr: str | None = None
    """
    Standard error, if it is UTF-8.
    """
    stderr_base64: Annotated[str | None, Field(alias="stderrBase64")] = None
    """
    Standard error, if it is not.
    """
    stderr_bytes: Annotated[int, Field(alias="stderrBytes", ge=0)]
    """
    The same of standard error.
    """
    stdout: str | None = None
    """
    Standard output, if it is UTF-8.
    """
    stdout_base64: Annotated[str | None, Field(alias="stdoutBase64")] = None
    """
    Standard output, if it is not.
    """
    stdout_bytes: Annotated[int, Field(alias="stdoutBytes", ge=0)]
    """
    Bytes that the command wrote to standard output, handed over or not.
    """
    truncated: bool
    """
    Whether some of them were dropped.
    """
    write: Held | None = None
    """
    Whether `access.write` was held, where it was asked for.
    """


class ExecRequest(BaseModel):
    """
    A command to run in a sandbox.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    access: Access | None = None
    """
    What the call may do, beyond what the sandbox forbids to all. Absent: nothing less.
    """
    command: Annotated[list[str], Field(max_length=4096, min_length=1)]
    """
    The program, looked up in the sandbox's PATH, and its arguments. No shell stands between.
    """
    cwd: Annotated[str | None, Field(max_length=4095)] = None
    """
    Where to start: an absolute path. Absent: the sandbox's own directory.
    """
    env: Annotated[dict[str, str] | None, Field(max_length=256)] = None
    """
    Variables beside, or in place of, those of the sandbox.
    """
    max_output_bytes: Annotated[int | MaxOutputBytes | None, Field(alias="maxOutputBytes")] = None
    """
    How much output is handed over, of both streams together: bytes, or a quantity such as `1Mi`. What comes beyond is counted
    and dropped. Absent: the default.
    """
    on_hangup: Annotated[OnHangup | None, Field(alias="onHangup")] = "Kill"
    """
    What becomes of the call when the client hangs up.
    """
    stdin: str | None = None
    """
    What the command reads from standard input, as text. Absent: an end at once.
    """
    stdin_base64: Annotated[str | None, Field(alias="stdinBase64")] = None
    """
    The same as base64, for what is no text. Only one of both.
    """
    stream: bool | None = False
    """
    Whether output comes line by line as it is written, or in one answer at the end.
    """
    terminal: Terminal | None = None
    """
    A terminal of this size in place of pipes; all output is standard output then. Over a WebSocket alone.
    """
    timeout: Annotated[str | None, Field(max_length=32, pattern="^([0-9]{1,9}(ms|s|m|h))+$")] = None
    """
    After how long everything that the command has started is killed: `30s`, `5m`. Absent: the default.
    """


class ExecResult(BaseModel):
    """
    How a call went.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    duration_ms: Annotated[int, Field(alias="durationMs", ge=0)]
    """
    From the start of the command to the end of all that it had started.
    """
    exit_code: Annotated[int | None, Field(alias="exitCode", ge=0, le=255)] = None
    """
    With the outcome Exited; 126 or 127 where it was not started.
    """
    id: str
    """
    The call, as logs and audit records name it.
    """
    message: str | None = None
    """
    Why it did not start.
    """
    network: Held | None = None
    """
    Whether `access.network: false` was held, where it was asked for.
    """
    outcome: Outcome
    """
    How it ended.
    """
    signal: Annotated[int | None, Field(ge=0, le=255)] = None
    """
    The number of the signal that ended the command, if one did.
    """
    stderr_bytes: Annotated[int, Field(alias="stderrBytes", ge=0)]
    """
    The same of standard error.
    """
    stdout_bytes: Annotated[int, Field(alias="stdoutBytes", ge=0)]
    """
    Bytes that the command wrote to standard output, handed over or not.
    """
    truncated: bool
    """
    Whether some of them were dropped.
    """
    write: Held | None = None
    """
    Whether `access.write` was held, where it was asked for.
    """


class FileInfo(BaseModel):
    """
    What is told of a file.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    kind: FileKind
    """
    What it is.
    """
    mode: str
    """
    Its mode, in octal digits.
    """
    modified: str | None = None
    """
    When it was last written. Absent where the sandbox says a time that can't be.
    """
    path: str
    """
    Its name in the directory that is listed; otherwise its path below the workspace.
    """
    size: Annotated[int, Field(ge=0)]
    """
    Bytes that it holds.
    """


class FileList(BaseModel):
    """
    What is in a directory.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    entries: list[FileInfo]
    """
    By their names.
    """
    skipped: Annotated[int, Field(ge=0)]
    """
    How many are not listed since their names are no UTF-8.
    """
    truncated: bool
    """
    Whether there are more than are listed.
    """


class Problem(BaseModel):
    """
    A request that is not carried out.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    field: str | None = None
    """
    The field, parameter or header that it is about, if it is about one.
    """
    message: str
    """
    Why, and what to do next.
    """
    reason: Reason
    """
    Why, in one word.
    """


class ErrorBody(BaseModel):
    """
    The body of every answer that is no success.
    """

    model_config = ConfigDict(
        populate_by_name=True,
    )
    error: Problem
    """
    What is wrong.
    """


class ExecLine5(BaseModel):
    """
    How it went. Nothing follows.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    result: ExecResult


class ExecLine6(BaseModel):
    """
    It went wrong after it had started. Nothing follows.
    """

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )
    error: Problem


ExecLine = TypeAliasType("ExecLine", ExecLine1 | ExecLine2 | ExecLine3 | ExecLine4 | ExecLine5 | ExecLine6)
"""
One line of a call that is streamed. The last one is a result or an error; without either, the call was lost.
"""
