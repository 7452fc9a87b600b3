"""Each operation of the session's API as a request and what its answer means. No I/O."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import IO, Literal, TypedDict, Unpack

from pydantic import TypeAdapter, ValidationError

from . import _models as models
from . import _results as results
from ._errors import ApiError, CallFailed, ConnectionLost, NotFound, ProtocolError
from ._span import Span, seconds, written
from ._wire import GRACE, Body, Flow, Lines, Request, Sleep, read, sent

MOST_OUTPUT = 64 * 1024 * 1024
"""Most bytes of output that a session hands over of one call."""
MOST_LINE = 1024 * 1024
"""Longest line of a stream: 64 KiB of output at once, of which each byte may be written as six."""
MOST_LISTING = 64 * 1024 * 1024
"""Most bytes of a listing: 4 MiB of names, escaped, and what is told of each."""
MOST_TRANSFER = 256 * 1024 * 1024
"""Most bytes of a file or an archive, as a session carries by default."""
MOST_ARCHIVE = MOST_TRANSFER + 100_000 * 2048
"""Most bytes of an archive: those of its files, and of each a header and what is filled up."""
LONGEST_CALL = 600.0
"""Seconds that a call may take that says nothing of it."""
LONGEST_WAIT = 30.0
"""Seconds of one request of a wait: what stands between often ends a request that is silent for a minute."""
UNKNOWN_YET = 10.0
"""Seconds for which a sandbox that was just made may be unknown to the session."""


@dataclass(frozen=True)
class Place:
    """A sandbox."""

    namespace: str
    name: str

    def __post_init__(self) -> None:
        for text in (self.namespace, self.name):
            # No escape is needed in a path, and none is made.
            if (
                not text
                or not all(c.isascii() and (c.isdigit() or c.islower() or c in "-.") for c in text)
                or text in (".", "..")
            ):
                raise ValueError(f"{text!r} is no name of a namespace or sandbox: lower-case letters, digits, - and .")

    def path(self, rest: str = "") -> str:
        """Of the API."""
        return f"/v1/namespaces/{self.namespace}/sandboxes/{self.name}{rest}"


class Access(TypedDict, total=False):
    """Limits of a single call, beyond those of the sandbox."""

    write: Sequence[str]
    """Where it may write: absolute paths; an empty list means nowhere."""
    network: bool
    """Whether it may open sockets."""


class CommandOptions(TypedDict, total=False):
    """Of each command, be it streamed or not."""

    env: Mapping[str, str] | None
    """Variables beside, or in place of, those of the sandbox."""
    cwd: str | None
    """Where to start: an absolute path. Otherwise the workspace."""
    stdin: str | bytes | None
    """What it reads from standard input, at most 3 MB."""
    timeout: Span | None
    """After how long everything that it has started is killed. Otherwise what the sandbox says."""
    max_output_bytes: int | str | None
    """How much output is handed over, such as `1Mi`; what comes beyond is counted and dropped."""
    access: Access | None
    """What the call may do, beyond what the sandbox forbids to all."""
    on_hangup: Literal["Kill", "Keep"] | None
    """What becomes of it when the connection breaks."""


class ExecOptions(CommandOptions, total=False):
    """Of a command whose result comes in one piece."""

    idempotency_key: str | None
    """Makes a retry the same call, for ten minutes, at the same replica of the session; at another one it is a new call. A command
    that has a key goes on until its deadline when its caller gives up, and a request whose connection broke is sent again with it.
    Without one, a connection that broke raises, and whoever gives up ends the command."""
    check: bool
    """Whether `CallFailed` is raised unless the command ends with exit code 0."""


def _exec_request(place: Place, command: Sequence[str], options: CommandOptions, *, stream: bool) -> Request:
    if isinstance(command, str | bytes):
        raise TypeError("expected a list of words; for a line of shell, ['sh', '-c', line]")
    stdin, span, access = options.get("stdin"), options.get("timeout"), options.get("access")
    most = options.get("max_output_bytes")
    try:
        body = models.ExecRequest(
            command=list(command),
            env=dict(options.get("env") or {}),
            cwd=options.get("cwd"),
            stdin=stdin if isinstance(stdin, str) else None,
            stdin_base64=base64.b64encode(stdin).decode() if isinstance(stdin, bytes) else None,
            timeout=None if span is None else written(span),
            max_output_bytes=most,
            access=None if access is None else models.Access.model_validate(access),
            on_hangup=options.get("on_hangup") or "Kill",
            stream=stream,
        )
        content = body.model_dump_json(by_alias=True, exclude_none=True, exclude_defaults=True)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ValueError(f"{where}: {error.errors()[0]['msg']}") from None
    # Each byte of output may be written as six characters.
    bound = 6 * (most if isinstance(most, int) else MOST_OUTPUT) + 64 * 1024
    patience = (LONGEST_CALL if span is None else seconds(span)) + GRACE
    headers = {"Content-Type": "application/json"}
    return Request(
        "POST", place.path("/exec"), {}, headers, Body(content), patience, bound, repeatable=False, streams=stream
    )


def exec_(place: Place, command: Sequence[str], **options: Unpack[ExecOptions]) -> Flow[results.ExecResult]:
    """Has a command run, and gives its result."""
    check = options.get("check", False)
    key = options.get("idempotency_key")
    request = _exec_request(place, command, options, stream=False)
    if key is not None:
        headers = {**request.headers, "Idempotency-Key": key}
        request = dataclasses.replace(request, headers=headers, repeatable=True)
    answer = yield from sent(request)
    result = results.exec_result(read(models.ExecAnswer, answer.body))
    if check and not result.ok:
        raise CallFailed(result)
    return result


def stream(place: Place, command: Sequence[str], **options: Unpack[CommandOptions]) -> Request:
    """Has a command run whose output comes as it is written. Never sent again: it would run again."""
    return _exec_request(place, command, options, stream=True)


_LINE: TypeAdapter[models.ExecLine] = TypeAdapter(models.ExecLine)


class Events:
    """What the lines of a stream say."""

    def __init__(self) -> None:
        self._lines = Lines(MOST_LINE)
        self._over = False

    def feed(self, piece: bytes) -> list[results.Event]:
        """The events that are whole by this piece."""
        return [self._event(line) for line in self._lines.feed(piece) if line.strip()]

    def end(self) -> None:
        """A stream without a last line of result or error was cut off."""
        if not self._over:
            message = (
                "the stream ended without a result: the command may have run to its end; look before you run it again"
            )
            raise ConnectionLost(message, sent=True)

    def _event(self, line: bytes) -> results.Event:
        if self._over:
            raise ProtocolError("the session says something after the result; report this")
        try:
            said = _LINE.validate_json(line)
        except ValidationError:
            raise ProtocolError(
                "a line of the stream is not as the API says; is the client older than the session?"
            ) from None
        match said:
            case models.ExecLine1(stdout=text):
                return results.Stdout(text.encode())
            case models.ExecLine2(stdout_base64=text):
                return results.Stdout(results.output(None, text))
            case models.ExecLine3(stderr=text):
                return results.Stderr(text.encode())
            case models.ExecLine4(stderr_base64=text):
                return results.Stderr(results.output(None, text))
            case models.ExecLine5(result=result):
                self._over = True
                return results.result(result)
            case models.ExecLine6(error=problem):
                raise ApiError.of(problem.reason, problem.message, problem.field, 200)


def status(place: Place) -> Flow[models.SandboxStatus]:
    """Where the sandbox stands."""
    answer = yield from sent(Request("GET", place.path(), repeatable=True))
    return read(models.SandboxStatus, answer.body)


def wait(place: Place, what: models.WaitFor, span: Span, *, young: bool = False) -> Flow[models.SandboxStatus]:
    """Until the sandbox is as wanted or the time is over: `reached` says which. One that is young may not be known yet."""
    now = monotonic()
    ends, known_by = now + seconds(span), now + min(UNKNOWN_YET if young else 0.0, seconds(span))
    while True:
        left = max(ends - monotonic(), 0.0)
        # Whole milliseconds: the API has none smaller.
        part = round(min(left, LONGEST_WAIT), 3)
        query = {"for": what, "timeout": written(part)}
        request = Request("GET", place.path("/wait"), query, read_timeout=part + GRACE, repeatable=True)
        try:
            answer = yield from sent(request)
        except NotFound:
            if monotonic() >= known_by:
                raise
            yield Sleep(0.2)
            continue
        said = read(models.SandboxStatus, answer.body)
        if said.reached or left <= LONGEST_WAIT:
            return said


class LogOptions(TypedDict, total=False):
    """Of the workload's output."""

    follow: bool
    """Whether what is written from now on comes as well, until the workload ends."""
    tail_lines: int | None
    """How many lines of what is there already, at most."""
    since: Span | None
    """How old they may be."""
    timestamps: bool
    """Whether each line begins with its time."""


def logs(place: Place, **options: Unpack[LogOptions]) -> Request:
    """What the workload has written."""
    follow, since = options.get("follow", False), options.get("since")
    said = {
        "follow": "true" if follow else None,
        "tailLines": options.get("tail_lines"),
        "since": None if since is None else written(since),
        "timestamps": "true" if options.get("timestamps") else None,
    }
    query = {name: str(value) for name, value in said.items() if value is not None}
    silence = None if follow else 60.0
    return Request("GET", place.path("/logs"), query, read_timeout=silence, repeatable=True, streams=True)


def _file_request(
    place: Place,
    method: str,
    what: str,
    path: str,
    span: Span | None,
    more: Mapping[str, str | bool | None] | None = None,
    body: Body | None = None,
    content_type: str | None = None,
) -> Request:
    query = {"path": path} if path else {}
    if span is not None:
        query["timeout"] = written(span)
    for name, value in (more or {}).items():
        if value not in (None, False):
            query[name] = "true" if value is True else str(value)
    headers = {"Content-Type": content_type} if content_type else {}
    patience = (LONGEST_CALL if span is None else seconds(span)) + GRACE
    looks = method == "GET"
    return Request(method, place.path(f"/files{what}"), query, headers, body, patience, repeatable=looks)


def read_file(place: Place, path: str, *, timeout: Span | None = None, max_bytes: int = MOST_TRANSFER) -> Flow[bytes]:
    """What a file holds."""
    request = dataclasses.replace(_file_request(place, "GET", "", path, timeout), most=max_bytes)
    answer = yield from sent(request)
    return answer.body


class WriteOptions(TypedDict, total=False):
    """Of a file that is written."""

    mode: int | None
    """Its mode, such as 0o755. Otherwise as it was, and 0o644 for a new one."""
    parents: bool
    """Whether directories on the way are made."""
    replace: bool
    """Whether a file that is there is replaced, as it is if absent."""
    timeout: Span | None
    """From the start until it is given up."""


def write_file(
    place: Place, path: str, data: bytes | str | IO[bytes], **options: Unpack[WriteOptions]
) -> Flow[models.FileDone]:
    """Makes a file, or replaces one."""
    mode, replace = options.get("mode"), options.get("replace", True)
    more = {
        "mode": None if mode is None else f"{mode:o}",
        "parents": options.get("parents"),
        "replace": None if replace else "false",
    }
    span = options.get("timeout")
    request = _file_request(place, "PUT", "", path, span, more, Body(data), "application/octet-stream")
    answer = yield from sent(request)
    return read(models.FileDone, answer.body)


def delete_file(
    place: Place, path: str, *, recursive: bool = False, timeout: Span | None = None
) -> Flow[models.FileDone]:
    """Removes a file, a link or a directory."""
    answer = yield from sent(_file_request(place, "DELETE", "", path, timeout, {"recursive": recursive}))
    return read(models.FileDone, answer.body)


def stat_file(place: Place, path: str = "", *, timeout: Span | None = None) -> Flow[models.FileInfo]:
    """What is at a path."""
    answer = yield from sent(_file_request(place, "GET", "/entry", path, timeout))
    return read(models.FileInfo, answer.body)


def list_files(place: Place, path: str = "", *, timeout: Span | None = None) -> Flow[models.FileList]:
    """What is in a directory."""
    answer = yield from sent(
        dataclasses.replace(_file_request(place, "GET", "/list", path, timeout), most=MOST_LISTING)
    )
    return read(models.FileList, answer.body)


def upload_archive(
    place: Place, archive: bytes | IO[bytes], path: str = "", *, timeout: Span | None = None
) -> Flow[models.FileDone]:
    """Makes what an archive holds."""
    request = _file_request(place, "PUT", "/archive", path, timeout, None, Body(archive), "application/x-tar")
    answer = yield from sent(request)
    return read(models.FileDone, answer.body)


def download_archive(place: Place, path: str = "", *, timeout: Span | None = None) -> Request:
    """What is below a directory, as an archive."""
    return dataclasses.replace(_file_request(place, "GET", "/archive", path, timeout), streams=True)
