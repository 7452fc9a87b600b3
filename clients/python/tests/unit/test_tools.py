"""What a model writes, and what it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake import Answer, Fake, problem
from flavours import Flavour

import glovebox


@pytest.fixture
def tool(surface: Flavour, sandbox: Any) -> Any:
    return surface.PythonTool(sandbox, timeout=5, max_chars=100)


def _answer(**more: Any) -> Answer:
    common = {"id": "1", "outcome": "Exited", "stdoutBytes": 0, "stderrBytes": 0, "truncated": False, "durationMs": 1}
    return Answer(200, {**common, **more})


def test_its_schema_is_what_it_takes(tool: Any) -> None:
    schema = tool.schema()
    assert schema["name"] == "run_python"
    assert "5 seconds" in schema["description"]
    assert schema["parameters"]["required"] == ["code"]
    assert schema["parameters"]["additionalProperties"] is False
    assert json.loads(json.dumps(schema)) == schema


def test_a_program_is_run(tool: Any, fake: Fake) -> None:
    assert tool.run('{"code": "print(1)"}') == "exit code: 0\nstdout:\nprint(1)"
    assert tool.run({"code": "print(1)"}) == "exit code: 0\nstdout:\nprint(1)"
    said = fake.said[0].json
    assert (said["command"], said["stdin"], said["timeout"]) == (["python3", "-u", "-"], "print(1)", "5s")


def test_a_line_of_shell_is_run(surface: Flavour, sandbox: Any, fake: Fake) -> None:
    fake.programs["sh"] = fake.programs["fail"]
    tool = surface.ShellTool(sandbox)
    assert tool.schema()["name"] == "run_shell"
    assert tool.run({"command": "false"}) == "exit code: 3\nstderr:\nit is \\x1b[31mbroken"
    assert fake.said[0].json["command"] == ["sh", "-c", "false"]


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "print(1)",
        "[1]",
        "null",
        "{}",
        "[" * 100_000,
        '{"code": 1}',
        '{"code": " "}',
        '{"code": "a", "more": 1}',
        '{"code": "\\u0000"}',
        '{"code": "\\ud800"}',
        {"code": "x" * 2_000_000},
        None,
    ],
)
def test_mistakes_of_the_model_are_told(tool: Any, fake: Fake, arguments: Any) -> None:
    assert tool.run(arguments).startswith("error: ")
    assert not fake.said


def test_ends_of_all_kinds_are_told(tool: Any, fake: Fake) -> None:
    fake.instead = [
        _answer(outcome="DeadlineExceeded", stdout="so far"),
        _answer(outcome="Signalled", signal=9),
        _answer(outcome="NotStarted", message="no python3", exitCode=127),
        _answer(exitCode=0, stdout="a" * 300, truncated=True),
        problem("CallLost", 502, "it may have run"),
    ]
    told = [tool.run({"code": "1"}) for _ in range(5)]
    assert told[0] == "killed at its deadline, after 5 seconds\nstdout:\nso far"
    assert told[1] == "was ended by signal 9\nno output"
    assert "was not started: no python3" in told[2]
    assert "dropped" in told[3]
    assert "[200 characters left out]" in told[3]
    assert len(told[3]) < 300
    assert told[4] == "error: CallLost: it may have run"


def test_what_no_model_can_mend_raises(tool: Any, fake: Fake) -> None:
    for reason, status, kind in [("Ended", 410, glovebox.Ended), ("Forbidden", 403, glovebox.Forbidden)]:
        fake.instead = [problem(reason, status)]
        with pytest.raises(kind):
            tool.run({"code": "1"})
