"""Commands: what is sent, what is made of the answers, and what is sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake import Answer, Fake, problem

import glovebox
from glovebox import Result, Stderr, Stdout


def test_a_command_is_sent_as_the_api_says(sandbox: Any, fake: Fake) -> None:
    result = sandbox.exec(
        ["echo", "a", "b"],
        env={"A": "1"},
        cwd="/workspace",
        stdin=b"\xff",
        timeout=1.5,
        max_output_bytes="1Mi",
        access={"write": [], "network": False},
        idempotency_key="k",
    )
    assert result.ok
    assert (result.stdout, result.stdout_bytes, result.exit_code, result.outcome) == ("a b\n", b"a b\n", 0, "Exited")
    (said,) = fake.said
    assert said.path == "/v1/namespaces/ns/sandboxes/box/exec"
    assert (said.headers["authorization"], said.headers["idempotency-key"]) == ("Bearer a-token", "k")
    assert said.json == {
        "command": ["echo", "a", "b"],
        "env": {"A": "1"},
        "cwd": "/workspace",
        "stdinBase64": "/w==",
        "timeout": "1s500ms",
        "maxOutputBytes": "1Mi",
        "access": {"write": [], "network": False},
    }


def test_output_that_is_no_text(sandbox: Any) -> None:
    result = sandbox.exec(["bytes"])
    assert result.stdout_bytes == b"\xff\x00a"
    assert result.stdout == "\N{REPLACEMENT CHARACTER}\x00a"
    assert sandbox.exec(["cat"], stdin="text").stdout == "text"


def test_a_bad_end_raises_where_it_is_asked_for(sandbox: Any) -> None:
    assert not sandbox.exec(["fail"]).ok
    with pytest.raises(glovebox.CallFailed, match=r"exit code 3.*broken") as caught:
        sandbox.exec(["fail"], check=True)
    assert caught.value.result.exit_code == 3
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        ("Forbidden", 403, glovebox.Forbidden),
        ("Unauthenticated", 401, glovebox.Unauthenticated),
        ("NotFound", 404, glovebox.NotFound),
        ("NotReady", 409, glovebox.NotReady),
        ("Ended", 410, glovebox.Ended),
        ("PathRefused", 422, glovebox.PathRefused),
        ("CallLost", 502, glovebox.CallLost),
        ("OfALaterVersion", 418, glovebox.ApiError),
    ],
)
def test_refusals_have_kinds(sandbox: Any, fake: Fake, reason: str, status: int, kind: type[glovebox.ApiError]) -> None:
    fake.instead = [problem(reason, status, "do this")]
    with pytest.raises(kind, match="do this") as caught:
        sandbox.exec(["echo"])
    assert (caught.value.reason, caught.value.status, len(fake.said)) == (reason, status, 1)


def test_what_is_refused_for_now_is_sent_again(sandbox: Any, fake: Fake) -> None:
    fake.instead = [problem("SandboxBusy", 429, Retry_After="0"), problem("ShuttingDown", 503, Retry_After="0")]
    assert sandbox.exec(["echo", "a"], idempotency_key="k").stdout == "a\n"
    keys = {said.headers["idempotency-key"] for said in fake.said}
    assert (len(fake.said), len(keys), fake.ran) == (3, 1, 1)


def test_patience_has_an_end(sandbox: Any, fake: Fake) -> None:
    fake.instead = [problem("SandboxBusy", 429, Retry_After="0")] * 50
    with pytest.raises(glovebox.Busy):
        sandbox.exec(["echo"])
    assert 2 < len(fake.said) < 20
    fake.instead = [problem("SandboxBusy", 429, Retry_After="3600")]
    with pytest.raises(glovebox.Busy):
        sandbox.exec(["echo"])


def test_a_lost_answer_is_asked_for_again_by_its_key(sandbox: Any, fake: Fake) -> None:
    fake.instead = [Answer(None)]
    assert sandbox.exec(["echo", "a"], idempotency_key="k").stdout == "a\n"
    first, second = fake.said
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_without_a_key_nothing_runs_twice(sandbox: Any, fake: Fake) -> None:
    fake.instead = [Answer(None)]
    with pytest.raises(glovebox.ConnectionLost, match="may have been carried out") as caught:
        sandbox.exec(["echo", "a"])
    assert caught.value.sent
    assert len(fake.said) == 1
    assert "idempotency-key" not in fake.said[0].headers
    # Nobody knows what stands before the session has done.
    fake.instead = [Answer(503, b"upstream away")]
    with pytest.raises(glovebox.ApiError, match="status 503"):
        sandbox.exec(["echo", "a"])
    assert len(fake.said) == 2


def test_mistakes_of_the_caller_are_told_before_anything_is_sent(sandbox: Any, fake: Fake) -> None:
    with pytest.raises(TypeError, match="list of words"):
        sandbox.exec("echo a")
    with pytest.raises(ValueError, match="command"):
        sandbox.exec([])
    with pytest.raises(ValueError, match="duration"):
        sandbox.exec(["echo"], timeout="1 minute")
    assert not fake.said


def test_answers_that_are_none(sandbox: Any, fake: Fake) -> None:
    fake.instead = [Answer(200, {"id": "1", "outcome": "Flew away", "secret": "inside"})]
    with pytest.raises(glovebox.ProtocolError, match="ExecAnswer") as caught:
        sandbox.exec(["echo"])
    assert "inside" not in str(caught.value)
    fake.instead = [Answer(200, b"x" * 100_000)]
    with pytest.raises(glovebox.ProtocolError, match="more than"):
        sandbox.exec(["echo"], max_output_bytes=10)
    fake.instead = [Answer(200, b"", {"Content-Encoding": "gzip"})]
    with pytest.raises(glovebox.ProtocolError, match="compressed"):
        sandbox.exec(["echo"])
    fake.instead = [Answer(302, b"", {"Location": "http://127.0.0.1:1/"})]
    with pytest.raises(glovebox.ApiError, match="status 302"):
        sandbox.exec(["echo"])


def test_a_stream_yields_what_comes_and_the_result(sandbox: Any, fake: Fake) -> None:
    *output, last = sandbox.stream(["cat"], stdin="a\nb")
    assert output == [Stdout(b"a\nb")]
    assert isinstance(last, Result)
    assert last.ok
    assert "idempotency-key" not in fake.said[0].headers
    assert fake.said[0].json["stream"] is True
    *output, last = sandbox.stream(["fail"])
    assert output == [Stderr(b"it is \x1b[31mbroken\n")]
    assert (last.exit_code, last.ok) == (3, False)
    events = sandbox.stream(["bytes"])
    assert next(events) == Stdout(b"\xff\x00a")
    events.close()


def test_a_stream_that_breaks_off_raises(sandbox: Any, fake: Fake) -> None:
    fake.lines = [b'{"stdout": "a"}']
    events = sandbox.stream(["echo"])
    assert next(events) == Stdout(b"a")
    with pytest.raises(glovebox.ConnectionLost, match="without a result"):
        next(events)
    fake.instead = [Answer(200, b'{"stdout": "a"}\n', cut=True)]
    with pytest.raises(glovebox.ConnectionLost):
        list(sandbox.stream(["echo"]))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"error": {"reason": "CallLost", "message": "it may have run"}}', glovebox.CallLost),
        (b'{"stdout": 1}', glovebox.ProtocolError),
        (b'{"stdout": "' + b"x" * 2_000_000 + b'"}', glovebox.ProtocolError),
        (b'{"stdoutBase64": "%"}', glovebox.ProtocolError),
        (b"[" * 100_000, glovebox.ProtocolError),
    ],
)
def test_a_stream_that_goes_wrong_raises(
    sandbox: Any, fake: Fake, line: bytes, kind: type[glovebox.GloveboxError]
) -> None:
    fake.lines = [line]
    with pytest.raises(kind):
        list(sandbox.stream(["echo"]))


def test_nothing_follows_a_result(sandbox: Any, fake: Fake) -> None:
    common = {"id": "1", "outcome": "Exited", "stdoutBytes": 0, "stderrBytes": 0, "truncated": False, "durationMs": 1}
    fake.lines = [json.dumps({"result": common}).encode(), b'{"stdout": "a"}']
    with pytest.raises(glovebox.ProtocolError, match="after the result"):
        list(sandbox.stream(["echo"]))


def test_a_stream_that_is_refused(sandbox: Any, fake: Fake) -> None:
    fake.instead = [problem("SandboxBusy", 429, Retry_After="0"), problem("NotReady", 409)]
    with pytest.raises(glovebox.NotReady):
        list(sandbox.stream(["echo"]))
    assert len(fake.said) == 2


def test_status_and_waiting(sandbox: Any, fake: Fake) -> None:
    assert sandbox.status().phase == "Running"
    fake.waits = [{"reached": False}]
    assert sandbox.wait("Finished", "2s").reached is False
    assert sandbox.wait().reached is True
    assert [said.query for said in fake.said[1:]] == [
        {"for": "Finished", "timeout": "2s"},
        {"for": "Ready", "timeout": "30s"},
    ]
    fake.instead = [problem("NotFound", 404)]
    with pytest.raises(glovebox.NotFound):
        sandbox.wait()


def test_logs_come_as_they_are(sandbox: Any, fake: Fake) -> None:
    assert b"".join(sandbox.logs(tail_lines=2, since="1m", timestamps=True)) == b"one\ntwo\n"
    assert b"".join(sandbox.logs(follow=True)) == b"one\ntwo\n"
    assert [said.query for said in fake.said] == [
        {"tailLines": "2", "since": "1m", "timestamps": "true"},
        {"follow": "true"},
    ]
