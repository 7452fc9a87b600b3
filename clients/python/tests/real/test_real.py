"""Against a real session and a real cluster.

Runs where GLOVEBOX_SESSION is set and a kubeconfig is there. GLOVEBOX_TEST_NAMESPACE and GLOVEBOX_TEST_IMAGE (with `sh` and `python3`) say
where and in what, GLOVEBOX_TEST_CLASS in which class, if not in the default one.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flavours import Flavour, flavour

import glovebox
from glovebox import Result, Stderr, Stdout

AGENT_LOOP = Path(__file__).resolve().parents[4] / "examples" / "agent-loop" / "main.py"


def _is_configured() -> bool:
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    kubeconfig = Path(os.environ.get("KUBECONFIG", "~/.kube/config")).expanduser()
    return "GLOVEBOX_SESSION" in os.environ and (in_a_pod or kubeconfig.is_file())


pytestmark = pytest.mark.skipif(not _is_configured(), reason="needs GLOVEBOX_SESSION and a kubeconfig")

NAMESPACE = os.environ.get("GLOVEBOX_TEST_NAMESPACE", "default")
IMAGE = os.environ.get("GLOVEBOX_TEST_IMAGE", "python:3.14-slim")
OPTIONS: dict[str, Any] = {
    "namespace": NAMESPACE,
    "class_name": os.environ.get("GLOVEBOX_TEST_CLASS") or None,
    "resources": {"cpu": "200m", "memory": "128Mi"},
    "ttl": "10m",
}
SAYS = "import sys; print('out', flush=True); print('err', file=sys.stderr, flush=True); sys.exit(3)"


@pytest.fixture(scope="module", params=["sync", "asyncio"])
def surface(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    with flavour(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(surface: Flavour) -> Iterator[Any]:
    """One for all tests of a surface: each keeps to files of its own."""
    workload = ["sh", "-c", "echo one; echo two; exec sleep 3600"]
    with surface.Sandbox.create(image=IMAGE, command=workload, **OPTIONS) as sandbox:
        yield sandbox


def test_a_command_runs(sandbox: Any) -> None:
    result = sandbox.exec(["python3", "-c", SAYS], timeout="60s")
    assert (result.outcome, result.exit_code, result.ok) == ("Exited", 3, False)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    with pytest.raises(glovebox.CallFailed, match=r"exit code 3.*err"):
        sandbox.exec(["python3", "-c", SAYS], timeout="60s", check=True)
    missing = sandbox.exec(["no-such-program"], timeout="60s")
    assert (missing.outcome, missing.exit_code) == ("NotStarted", 127)


def test_what_a_command_is_given(sandbox: Any) -> None:
    line = 'echo "$A in $PWD"; cat'
    told = sandbox.exec(["sh", "-c", line], env={"A": "b"}, cwd="/tmp", stdin=b"\x00\xff", timeout="60s")
    assert told.stdout_bytes == b"b in /tmp\n\x00\xff"
    cut = sandbox.exec(["sh", "-c", "yes | head -c 100000"], max_output_bytes=1000, timeout="60s")
    assert (cut.truncated, cut.stdout_total) == (True, 100_000)
    assert len(cut.stdout_bytes) == 1000


def test_a_command_streams(sandbox: Any) -> None:
    *output, last = sandbox.stream(["python3", "-c", SAYS], timeout="60s")
    assert isinstance(last, Result)
    assert (last.outcome, last.exit_code) == ("Exited", 3)
    assert b"".join(piece.data for piece in output if isinstance(piece, Stdout)) == b"out\n"
    assert b"".join(piece.data for piece in output if isinstance(piece, Stderr)) == b"err\n"


def test_output_comes_before_the_end(sandbox: Any) -> None:
    # It ends by what is written after its first word came.
    name = f"go-{uuid.uuid4().hex}"
    line = f"echo ready; until [ -e {name} ]; do sleep 0.1; done; echo done"
    events = sandbox.stream(["sh", "-c", line], timeout="120s")
    assert next(events) == Stdout(b"ready\n")
    sandbox.files.write(name, b"")
    *output, last = events
    assert last.ok
    assert b"".join(piece.data for piece in output) == b"done\n"


def test_a_deadline_ends_a_command_and_all_it_began(sandbox: Any) -> None:
    result = sandbox.exec(["sh", "-c", "echo begun; sleep 600 & sleep 600"], timeout="3s")
    assert (result.outcome, result.exit_code, result.stdout) == ("DeadlineExceeded", None, "begun\n")
    assert 3 <= result.duration < 60


def test_one_key_is_one_call(sandbox: Any) -> None:
    key, name = uuid.uuid4().hex, f"count-{uuid.uuid4().hex}"
    command = ["sh", "-c", f"echo x >> {name}; wc -l < {name}"]
    first = sandbox.exec(command, idempotency_key=key, timeout="60s")
    second = sandbox.exec(command, idempotency_key=key, timeout="60s")
    assert first.stdout.strip() == "1"
    assert second.id == first.id
    assert sandbox.files.read(name) == b"x\n"
    with pytest.raises(glovebox.InvalidRequest) as caught:
        sandbox.exec(["true"], idempotency_key=key)
    assert caught.value.reason == "KeyReused"


def test_a_file_goes_in_and_out(sandbox: Any) -> None:
    top, data = f"files-{uuid.uuid4().hex}", bytes(range(256)) * 1000
    sandbox.files.write(f"{top}/a b/ä.bin", io.BytesIO(data), parents=True, mode=0o600)
    assert sandbox.files.read(f"{top}/a b/ä.bin") == data
    info = sandbox.files.stat(f"{top}/a b/ä.bin")
    assert (info.kind, info.size, int(info.mode, 8)) == ("File", len(data), 0o600)
    with pytest.raises(glovebox.FileConflict):
        sandbox.files.write(f"{top}/a b/ä.bin", b"", replace=False)
    assert [entry.path for entry in sandbox.files.list(f"{top}/a b").entries] == ["ä.bin"]
    with pytest.raises(glovebox.FileConflict):
        sandbox.files.delete(top)
    sandbox.files.delete(top, recursive=True)
    with pytest.raises(glovebox.NoSuchFile):
        sandbox.files.stat(top)


def test_a_tree_goes_in_and_out(sandbox: Any, tmp_path: Path) -> None:
    tree, back, name = tmp_path / "tree", tmp_path / "back", f"tree-{uuid.uuid4().hex}"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "sub" / ("long" * 40)).write_bytes(b"\0" * 70_000)
    script = tree / "ä.sh"
    script.write_text("echo from the tree")
    script.chmod(0o755)
    sandbox.files.upload_dir(tree, name)
    assert sandbox.exec(["sh", f"{name}/ä.sh"], timeout="60s").stdout == "from the tree\n"
    sandbox.exec(["ln", "-s", "/etc", f"{name}/link"], timeout="60s", check=True)
    sandbox.files.download_dir(name, back)
    assert _tree(back) == _tree(tree)
    assert (back / "ä.sh").stat().st_mode & 0o777 == 0o755


def _tree(top: Path) -> dict[str, bytes | None]:
    return {one.relative_to(top).as_posix(): one.read_bytes() if one.is_file() else None for one in top.rglob("*")}


def test_what_is_not_there_and_what_may_not_be(sandbox: Any) -> None:
    with pytest.raises(glovebox.NoSuchFile):
        sandbox.files.read("no-such-file")
    for path in ("../x", "/etc/passwd", "a/../../x"):
        with pytest.raises((glovebox.InvalidRequest, glovebox.PathRefused)):
            sandbox.files.read(path)
    sandbox.exec(["ln", "-sf", "/etc/passwd", "out"], timeout="60s", check=True)
    with pytest.raises(glovebox.PathRefused):
        sandbox.files.read("out")


def test_where_it_stands(surface: Flavour, sandbox: Any) -> None:
    status = sandbox.status()
    assert (status.namespace, status.name, status.phase, status.ready) == (NAMESPACE, sandbox.name, "Running", True)
    assert sandbox.wait("Ready", "30s").reached
    assert sandbox.wait("Finished", "100ms").reached is False
    with surface.Sandbox.attach(NAMESPACE, sandbox.name) as attached:
        assert attached.exec(["true"], timeout="60s").ok
    assert sandbox.status().ready
    with surface.Sandbox.attach(NAMESPACE, "no-such-sandbox") as missing, pytest.raises(glovebox.NotFound):
        missing.status()


def test_a_model_has_a_program_run(surface: Flavour, sandbox: Any) -> None:
    tool = surface.PythonTool(sandbox, timeout="60s")
    assert tool.run('{"code": "print(6 * 7)"}') == "exit code: 0\nstdout:\n42"
    wrong = tool.run({"code": "1 / 0"})
    assert wrong.startswith("exit code: 1")
    assert "ZeroDivisionError" in wrong
    impatient = surface.PythonTool(sandbox, timeout="3s")
    told = impatient.run({"code": "print('so far')\nwhile True: pass"})
    assert told.startswith("killed at its deadline")
    assert "so far" in told
    assert surface.ShellTool(sandbox, timeout="60s").run({"command": "echo $((6 * 7))"}).endswith("42")


def _is_gone(surface: Flavour, name: str) -> bool:
    """Waits for the end of one that was deleted, as the session sees it."""
    with surface.Sandbox.attach(NAMESPACE, name) as deleted:
        try:
            return bool(deleted.wait("Finished", "2m").reached)
        except (glovebox.NotFound, glovebox.Ended):
            return True


def test_it_is_deleted_at_the_end(surface: Flavour) -> None:
    with surface.Sandbox.create(image=IMAGE, **OPTIONS) as made:
        assert made.exec(["true"], timeout="60s").ok
    assert _is_gone(surface, made.name)


def test_it_is_deleted_when_its_user_fails(surface: Flavour) -> None:
    names: list[str] = []
    with pytest.raises(ZeroDivisionError), surface.Sandbox.create(image=IMAGE, **OPTIONS) as made:
        _fails_of(made, names)
    assert _is_gone(surface, names[0])


def _fails_of(made: Any, names: list[str]) -> None:
    names.append(made.name)
    raise ZeroDivisionError


def test_it_may_live_shorter(surface: Flavour) -> None:
    with surface.Sandbox.create(image=IMAGE, **OPTIONS) as made:
        made.extend("1s")
        assert made.wait("Finished", "2m").reached


@pytest.mark.logs
def test_logs_of_the_workload(sandbox: Any) -> None:
    # Its first call came after its workload had begun, and that writes at once; followed, both lines come however late.
    lines = sandbox.logs(follow=True)
    found = b""
    for piece in lines:
        found += piece
        if found.count(b"\n") == 2:
            break
    lines.close()
    assert found == b"one\ntwo\n"
    assert b"".join(sandbox.logs()) == b"one\ntwo\n"
    assert b"".join(sandbox.logs(tail_lines=1, since="1h")) == b"two\n"
    stamped = b"".join(sandbox.logs(tail_lines=1, timestamps=True))
    assert stamped.endswith(b"Z two\n")


def test_the_agent_loop_of_the_examples() -> None:
    arguments = ["--image", IMAGE, "--namespace", NAMESPACE, "--cpu", "200m", "--memory", "128Mi"]
    if OPTIONS["class_name"]:
        arguments += ["--class-name", OPTIONS["class_name"]]
    command = [sys.executable, str(AGENT_LOOP), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "ZeroDivisionError" in ran.stdout
    assert ran.stdout.rstrip().endswith("answer: the mean of no numbers is 0.0, and of 1, 2, 3, 4 it is 2.5")
