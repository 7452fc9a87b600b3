"""Tools for a model: it writes a program or a line of shell, a sandbox runs it, and the model reads what came of it.

The model's mistakes are its own to read: none of them raises. What the model can't mend, such as a session that is away or a sandbox
that ended, raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from ._async_sandbox import AsyncSandbox
from ._calls import ExecOptions
from ._errors import AgentFailed, CallLost, DeadlineMissed, InvalidRequest
from ._results import ExecResult
from ._sandbox import Sandbox
from ._span import Span, seconds
from ._text import middle_out, safe

_ASKED_FOR = 256 * 1024
"""Bytes of output that are asked for: more than a model is shown, so that the end is among them."""


class _Tool:
    """What a tool is, whoever runs it."""

    NAME: ClassVar[str]
    PARAMETER: ClassVar[str]
    DESCRIPTION: ClassVar[str]
    MEANING: ClassVar[str]
    MOST_CODE: ClassVar[int]

    def __init__(self, timeout: Span, max_chars: int, name: str | None) -> None:
        self.name = name or self.NAME
        self._timeout = timeout
        self._most = max_chars

    def schema(self) -> dict[str, Any]:
        """The tool's name, description and parameters, as APIs of models take them."""
        deadline = f"It is killed after {seconds(self._timeout):g} seconds."
        return {
            "name": self.name,
            "description": f"{self.DESCRIPTION} {deadline}",
            "parameters": {
                "type": "object",
                "properties": {self.PARAMETER: {"type": "string", "description": self.MEANING}},
                "required": [self.PARAMETER],
                "additionalProperties": False,
            },
        }

    def _command(self, code: str) -> tuple[list[str], str | None]:
        raise NotImplementedError

    def _prepared(self, arguments: Mapping[str, Any] | str) -> tuple[list[str], ExecOptions] | str:
        """The call, or what is wrong with what the model wrote."""
        expected = f'expected a JSON object such as {{"{self.PARAMETER}": "..."}}'
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                return f"error: the arguments are no JSON; {expected}"
        if not isinstance(arguments, Mapping) or set(arguments) != {self.PARAMETER}:
            return f"error: {expected}, with this member and no other"
        code = arguments[self.PARAMETER]
        if not isinstance(code, str) or not code.strip():
            return f"error: {self.PARAMETER} is to be a text that is not empty"
        if "\0" in code or any("\ud800" <= character <= "\udfff" for character in code):
            return (
                f"error: {self.PARAMETER} has a character that no program may have (NUL, or half of a surrogate pair)"
            )
        if len(code.encode()) > self.MOST_CODE:
            return f"error: {self.PARAMETER} has more than {self.MOST_CODE} bytes; write less, or in parts to files"
        command, stdin = self._command(code)
        return command, {"stdin": stdin, "timeout": self._timeout, "max_output_bytes": _ASKED_FOR}

    def _told(self, result: ExecResult) -> str:
        match result.outcome:
            case "Exited":
                how = f"exit code: {result.exit_code}"
            case "DeadlineExceeded":
                how = f"killed at its deadline, after {seconds(self._timeout):g} seconds"
            case _:
                how = result.summary()
        parts = [how]
        if result.truncated:
            parts.append("some of the output was dropped, since there was too much of it")
        for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
            if text:
                parts.append(f"{name}:\n{middle_out(safe(text), self._most).rstrip()}")
        if not (result.stdout or result.stderr):
            parts.append("no output")
        # The word of the API's own message is in the first line; nothing is longer than two outputs.
        return "\n".join(parts)

    @staticmethod
    def _lost(error: Exception) -> str:
        return f"error: {error}"


_MODELS_DOING = (CallLost, AgentFailed, DeadlineMissed, InvalidRequest)
"""What code can bring about that kills what serves it, or that the session takes no longer."""


class _Python(_Tool):
    NAME = "run_python"
    PARAMETER = "code"
    DESCRIPTION = (
        "Runs a Python program in an isolated sandbox, and returns its exit code, stdout and stderr. "
        "Each call is a new process; files in the working directory stay from call to call. Print what you want to see."
    )
    MEANING = "The whole program."
    MOST_CODE = 1024 * 1024

    def _command(self, code: str) -> tuple[list[str], str | None]:
        # By standard input, since an argument may have 128 KiB at most; unbuffered, so that a deadline does not take what was printed.
        return ["python3", "-u", "-"], code


class _Shell(_Tool):
    NAME = "run_shell"
    PARAMETER = "command"
    DESCRIPTION = (
        "Runs a line of POSIX shell in an isolated sandbox, and returns its exit code, stdout and stderr. "
        "Each call is a new shell; files in the working directory stay from call to call."
    )
    MEANING = "The line, or several."
    MOST_CODE = 100 * 1024

    def _command(self, code: str) -> tuple[list[str], str | None]:
        return ["sh", "-c", code], None


class _Blocking(_Tool):
    def __init__(
        self, sandbox: Sandbox, *, timeout: Span = "30s", max_chars: int = 10_000, name: str | None = None
    ) -> None:
        """`max_chars` of each stream are shown; where there are more, the beginning and the end."""
        super().__init__(timeout, max_chars, name)
        self._sandbox = sandbox

    def run(self, arguments: Mapping[str, Any] | str) -> str:
        """What came of it, for the model to read."""
        prepared = self._prepared(arguments)
        if isinstance(prepared, str):
            return prepared
        command, options = prepared
        try:
            return self._told(self._sandbox.exec(command, **options))
        except _MODELS_DOING as error:
            return self._lost(error)


class _Awaited(_Tool):
    def __init__(
        self, sandbox: AsyncSandbox, *, timeout: Span = "30s", max_chars: int = 10_000, name: str | None = None
    ) -> None:
        """`max_chars` of each stream are shown; where there are more, the beginning and the end."""
        super().__init__(timeout, max_chars, name)
        self._sandbox = sandbox

    async def run(self, arguments: Mapping[str, Any] | str) -> str:
        """What came of it, for the model to read."""
        prepared = self._prepared(arguments)
        if isinstance(prepared, str):
            return prepared
        command, options = prepared
        try:
            return self._told(await self._sandbox.exec(command, **options))
        except _MODELS_DOING as error:
            return self._lost(error)


class PythonTool(_Python, _Blocking):
    """Runs a model's Python programs in a sandbox whose image has `python3`."""


class ShellTool(_Shell, _Blocking):
    """Runs a model's lines of shell in a sandbox whose image has `sh`."""


class AsyncPythonTool(_Python, _Awaited):
    """`PythonTool`, awaited."""


class AsyncShellTool(_Shell, _Awaited):
    """`ShellTool`, awaited."""


__all__ = ["AsyncPythonTool", "AsyncShellTool", "PythonTool", "ShellTool"]
