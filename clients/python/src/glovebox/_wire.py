"""Requests, when they are sent again, and what answers mean, without any I/O.

What takes several steps is a `Flow`: a generator that yields what is to be done and is handed what came of it. One loop of `_drive`
carries flows out in threads, another one under asyncio and trio.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import IO, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from ._errors import ApiError, ConnectionLost, GloveboxError, ProtocolError

PIECE = 64 * 1024
"""Bytes that are read of a file at once."""
SMALL = 1024 * 1024
"""Most bytes of an answer that holds nothing of a sandbox but a few words."""
GRACE = 20.0
"""Seconds beyond a call's own time until its answer is given up: the session itself gives up an agent after five."""


class Body:
    """What is sent: bytes, text, or a binary file from where it stands."""

    def __init__(self, data: bytes | str | IO[bytes]) -> None:
        self._file: IO[bytes] | None = None
        self.whole: bytes | None = None
        if isinstance(data, str):
            self.whole = data.encode()
        elif isinstance(data, bytes | bytearray | memoryview):
            self.whole = bytes(data)
        elif hasattr(data, "read"):
            self._file = data
            self._begins = data.tell() if data.seekable() else None
        else:
            raise TypeError(f"expected bytes, str or a binary file, not {type(data).__name__}")
        self._read = False

    def rewind(self) -> bool:
        """Whether it can be sent from its beginning, be it again."""
        if self._file is None or not self._read:
            return True
        if self._begins is None:
            return False
        self._file.seek(self._begins)
        return True

    def piece(self) -> bytes:
        """What comes next; nothing at the end."""
        if self._file is None:
            raise AssertionError("what is whole has no pieces")
        self._read = True
        piece = self._file.read(PIECE)
        if not isinstance(piece, bytes):
            raise TypeError("the file gives text; open it in binary mode")
        return piece

    def pieces(self) -> Iterator[bytes]:
        """All of it."""
        return iter(self.piece, b"")


@dataclass(frozen=True)
class Request:
    """A request to the session."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None
    read_timeout: float | None = 60.0
    """Seconds that may pass without a byte."""
    most: int = SMALL
    """Bytes that the answer may have."""
    repeatable: bool = False
    """Whether it may be sent again although it may have been carried out."""
    streams: bool = False
    """Whether a good answer is left open, to be read piece by piece."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    opened: Any = None
    """The answer as it is open, if it streams."""


@dataclass(frozen=True)
class ToCluster:
    """A request to the API server."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Sleep:
    """Nothing is done for so many seconds."""

    seconds: float


Effect = Request | ToCluster | Sleep
T = TypeVar("T")
Flow = Generator[Effect, Any, T]


class Patience:
    """When something is tried again: a few times, and not for long."""

    def __init__(self, times: int = 8, total: float = 30.0, clock: Callable[[], float] = monotonic) -> None:
        self._left, self._clock = times, clock
        self._ends = clock() + total
        self._pause = 0.25

    def pause(self, asked: float | None = None) -> float | None:
        """Seconds until the next attempt; none if there is to be no other."""
        wait = self._pause if asked is None else max(asked, 0.05)
        self._left -= 1
        self._pause = min(self._pause * 2, 4.0)
        return wait if self._left >= 0 and self._clock() + wait <= self._ends else None


def sent(request: Request) -> Flow[Answer]:
    """The answer, which is a good one. Sends again what was refused for now, and what is lost and may be repeated."""
    # An address where nobody is stays so more often than one that is busy.
    patience, hope = Patience(), Patience(times=4)
    while True:
        try:
            answer: Answer = yield request
            if 200 <= answer.status < 300:
                return answer
            failure: GloveboxError = refusal(answer)
            wait = patience.pause(retry_after(answer)) if _was_not_begun(request, answer) else None
        except ConnectionLost as lost:
            failure = lost
            wait = hope.pause() if request.repeatable or not lost.sent else None
        if wait is None or (request.body is not None and not request.body.rewind()):
            raise failure
        yield Sleep(wait)


def _was_not_begun(request: Request, answer: Answer) -> bool:
    """Whether nothing has been done: the session says so itself. What stands before it may say 503 later than that."""
    return answer.status in (429, 503) and (request.repeatable or problem(answer) is not None)


def retry_after(answer: Answer) -> float | None:
    """The seconds that the answer asks for."""
    said = answer.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() and len(said) < 6 else None


def problem(answer: Answer) -> tuple[str, str, str | None] | None:
    """Reason, message and field, if the answer has the API's shape. Reasons that this version does not know are fine."""
    try:
        said = json.loads(answer.body)["error"]
        reason, message, about = said["reason"], said["message"], said.get("field")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if isinstance(reason, str) and isinstance(message, str) and isinstance(about, str | None):
        return reason, message, about
    return None


def refusal(answer: Answer) -> ApiError:
    """What an answer that is no good one means."""
    said = problem(answer)
    if said is None:
        message = f"the answer has status {answer.status} and is none of the session's; is the address the session's?"
        return ApiError("NotTheSession", message, None, answer.status)
    return ApiError.of(*said, answer.status)


def status_of_cluster(code: int, body: bytes) -> ApiError:
    """What the API server says when it refuses."""
    try:
        said = json.loads(body)
        reason, message = said["reason"], said["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        reason, message = "ApiServer", f"the API server answered with status {code}"
    return ApiError.of(str(reason), str(message), None, code)


M = TypeVar("M", bound=BaseModel)


def read(model: type[M], body: bytes) -> M:
    """An answer's body as what it is to be."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        # Without the values: they are a sandbox's.
        where = ", ".join(
            ".".join(map(str, one["loc"])) or "all of it" for one in error.errors(include_input=False)[:3]
        )
        raise ProtocolError(
            f"the session's answer is no {model.__name__} ({where}); is the client older than the session?"
        ) from None


class Collected:
    """The bytes of an answer, as many as it may have."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = bytearray()

    def add(self, piece: bytes) -> None:
        """Takes a piece."""
        if len(self._bytes) + len(piece) > self._most:
            raise ProtocolError(f"the answer has more than {self._most} bytes; ask for less, or raise the bound")
        self._bytes += piece

    def done(self) -> bytes:
        """All of it."""
        return bytes(self._bytes)


class Lines:
    """Bytes as lines, none of which may be longer than is thought."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that are whole by this piece."""
        *whole, rest = piece.split(b"\n")
        lines = []
        for line in whole:
            lines.append(bytes(self._add(line)))
            self._begun.clear()
        self._add(rest)
        return lines

    def end(self) -> bool:
        """Whether nothing was begun."""
        return not self._begun

    def _add(self, part: bytes) -> bytearray:
        if len(self._begun) + len(part) > self._most:
            raise ProtocolError(f"a line of the stream has more than {self._most} bytes; report this")
        self._begun += part
        return self._begun


class Decoder(Protocol[T]):
    """What makes something of a stream's bytes."""

    def feed(self, piece: bytes) -> list[T]:
        """What comes of a piece."""

    def end(self) -> None:
        """Raises where the stream must not end like this."""


class AsTheyCome:
    """The bytes themselves, of which there may be so many."""

    def __init__(self, most: int | None = None) -> None:
        self._left = most

    def feed(self, piece: bytes) -> list[bytes]:
        """The piece."""
        if self._left is not None:
            self._left -= len(piece)
            if self._left < 0:
                raise ProtocolError("more came than may; raise max_bytes, or ask for less")
        return [piece] if piece else []

    def end(self) -> None:
        """However it ends is fine: what breaks off is told by HTTP itself."""
