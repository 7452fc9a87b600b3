"""What goes wrong. Each message says what to do next; that of the session and the API server is their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ._text import in_a_line

if TYPE_CHECKING:
    from ._models import SandboxStatus
    from ._results import ExecResult


class GloveboxError(Exception):
    """Everything that this package raises for what is no mistake in calling it."""


class ConfigError(GloveboxError):
    """Where the session or the cluster is, or who calls, is not known or can't be used."""


class ConnectionLost(GloveboxError):
    """No whole answer came. `sent` says whether the request may have been carried out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class ProtocolError(GloveboxError):
    """An answer is not as the API says, or larger than it may be."""


class StartTimeout(GloveboxError):
    """The sandbox was not ready in time. `status` is where it stands."""

    def __init__(self, message: str, status: SandboxStatus | None) -> None:
        super().__init__(message)
        self.status = status


class CallFailed(GloveboxError):
    """A command that was to succeed did not. `result` has its output."""

    def __init__(self, result: ExecResult) -> None:
        said = result.stderr.strip() or result.stdout.strip()
        tail = f"; it said last: {in_a_line(said[-300:])}" if said else ""
        super().__init__(f"the command {result.summary()}{tail}")
        self.result = result


class ApiError(GloveboxError):
    """A request was refused, or not carried out. `reason` is one word out of a closed list."""

    reasons: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, reason: str, message: str, field: str | None = None, status: int = 0) -> None:
        super().__init__(f"{in_a_line(reason, 100)}: {in_a_line(message, 2000)}")
        self.reason = reason
        self.message = message
        self.field = field
        self.status = status

    @staticmethod
    def of(reason: str, message: str, field: str | None = None, status: int = 0) -> ApiError:
        """The most telling kind for a reason."""
        return _KINDS.get(reason, ApiError)(reason, message, field, status)


class InvalidRequest(ApiError):
    """A field is missing, or out of its bounds."""

    reasons = frozenset({"InvalidRequest", "NotJson", "KeyReused", "Invalid", "BadRequest"})


class Unauthenticated(ApiError):
    """There is no token or certificate, or it is not good."""

    reasons = frozenset({"Unauthenticated", "Unauthorized"})


class Forbidden(ApiError):
    """A right is missing; the message says which."""

    reasons = frozenset({"Forbidden"})


class NotFound(ApiError):
    """There is no such sandbox."""

    reasons = frozenset({"NotFound"})


class AlreadyExists(ApiError):
    """There is a sandbox of this name."""

    reasons = frozenset({"AlreadyExists"})


class NotReady(ApiError):
    """The sandbox does not run yet, or is not fenced."""

    reasons = frozenset({"NotReady"})


class Ended(ApiError):
    """The sandbox ended; another one is needed."""

    reasons = frozenset({"Ended"})


class Busy(ApiError):
    """As much is under way as may be, also after some retries."""

    reasons = frozenset({"TooManyCalls", "SandboxBusy", "TooManyRequests"})


class Unavailable(ApiError):
    """The session, the API server, the sandbox's agent or the record is away, also after some retries. Nothing was carried out."""

    reasons = frozenset({"ApiUnavailable", "AgentUnreachable", "NotRecorded", "ShuttingDown", "ServiceUnavailable"})


class CallLost(ApiError):
    """The connection to the sandbox broke while the command ran: it may have run to its end."""

    reasons = frozenset({"CallLost"})


class AgentFailed(ApiError):
    """The sandbox's agent refused, or did not keep to its protocol."""

    reasons = frozenset({"AgentFailed"})


class DeadlineMissed(ApiError):
    """It was not done in its time."""

    reasons = frozenset({"DeadlineMissed", "DeadlineExceeded"})


class NoSuchFile(ApiError):
    """There is nothing at the path."""

    reasons = frozenset({"NoSuchFile"})


class FileConflict(ApiError):
    """What is at the path is of another kind, is there already, or is not empty."""

    reasons = frozenset({"FileConflict"})


class PathRefused(ApiError):
    """The path leads out of the workspace, or to where nothing may be read or written."""

    reasons = frozenset({"PathRefused"})


class ArchiveRefused(ApiError):
    """The archive is none, or has an entry that is refused."""

    reasons = frozenset({"ArchiveRefused"})


class TooLarge(ApiError):
    """More than is carried at once."""

    reasons = frozenset({"TooLarge"})


class NoSpace(ApiError):
    """The workspace is full."""

    reasons = frozenset({"NoSpace"})


_KINDS: dict[str, type[ApiError]] = {reason: kind for kind in ApiError.__subclasses__() for reason in kind.reasons}
