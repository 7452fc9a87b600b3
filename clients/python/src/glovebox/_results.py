"""How a command went, and what it said: the API's answers in the form that a program wants."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from . import _models as models
from ._errors import ProtocolError


@dataclass(frozen=True, slots=True)
class Result:
    """How a command went."""

    id: str
    """The call, as logs and audit records name it."""
    outcome: models.Outcome
    """How it ended."""
    exit_code: int | None
    """With the outcome `Exited`; 126 or 127 where it was not started."""
    signal: int | None
    """The signal that ended it, if one did."""
    message: str | None
    """Why it did not start."""
    stdout_total: int
    """Bytes that it wrote to standard output, handed over or not."""
    stderr_total: int
    """The same of standard error."""
    truncated: bool
    """Whether some of them were dropped."""
    duration: float
    """Seconds until the end of all that it had started."""
    write: models.Held | None
    """Whether `access.write` was held, where it was asked for."""
    network: models.Held | None
    """Whether `access.network: false` was held, where it was asked for."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.outcome == "Exited" and self.exit_code == 0

    def summary(self) -> str:
        """How it ended, in a few words."""
        match self.outcome:
            case "Exited":
                return f"ended with exit code {self.exit_code}"
            case "Signalled":
                return f"was ended by signal {self.signal}"
            case "DeadlineExceeded":
                return "was killed at its deadline"
            case "HungUp":
                return "was hung up on, and killed"
            case "ShutDown":
                return "was ended since the sandbox ended"
            case "NotStarted":
                return f"was not started: {self.message or 'no reason was told'}"


@dataclass(frozen=True, slots=True)
class ExecResult(Result):
    """How a command went, with its output."""

    stdout_bytes: bytes = field(repr=False)
    """Standard output."""
    stderr_bytes: bytes = field(repr=False)
    """Standard error."""

    @property
    def stdout(self) -> str:
        """Standard output as text; what is no UTF-8 is replaced."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; what is no UTF-8 is replaced."""
        return self.stderr_bytes.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Stdout:
    """A piece of standard output."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Stderr:
    """A piece of standard error."""

    data: bytes


Event = Stdout | Stderr | Result
"""What a stream yields: pieces of output, and the result last."""


def result(said: models.ExecResult) -> Result:
    """Of the last line of a stream."""
    return Result(**_common(said))


def exec_result(said: models.ExecAnswer) -> ExecResult:
    """Of an answer in one piece."""
    stdout = output(said.stdout, said.stdout_base64)
    return ExecResult(**_common(said), stdout_bytes=stdout, stderr_bytes=output(said.stderr, said.stderr_base64))


def output(text: str | None, encoded: str | None) -> bytes:
    """Text if it was text; otherwise what was encoded."""
    if encoded is None:
        return (text or "").encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ProtocolError("the session sent base64 that is none; report this") from error


def _common(said: models.ExecResult | models.ExecAnswer) -> dict[str, Any]:
    return {
        "id": said.id,
        "outcome": said.outcome,
        "exit_code": said.exit_code,
        "signal": said.signal,
        "message": said.message,
        "stdout_total": said.stdout_bytes,
        "stderr_total": said.stderr_bytes,
        "truncated": said.truncated,
        "duration": said.duration_ms / 1000,
        "write": said.write,
        "network": said.network,
    }
