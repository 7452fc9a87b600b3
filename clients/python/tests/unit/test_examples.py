"""The agent loop of the examples, with its scripted model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake import Fake

from glovebox import Session

AGENT_LOOP = Path(__file__).resolve().parents[4] / "examples" / "agent-loop" / "main.py"


@pytest.mark.skipif(not AGENT_LOOP.is_file(), reason="the examples are in the repository alone")
def test_the_agent_loop(session: Session, fake: Fake, tmp_path: Path) -> None:
    def python(body: dict[str, Any]) -> tuple[bytes, bytes, int]:
        ran = subprocess.run([sys.executable, "-"], input=body["stdin"].encode(), capture_output=True, check=False)
        return ran.stdout, ran.stderr, ran.returncode

    fake.programs["python3"] = python
    token = tmp_path / "token"
    token.write_text("t")
    environment = {**os.environ, "GLOVEBOX_SESSION": session.url, "GLOVEBOX_SESSION_TOKEN_FILE": str(token)}
    environment.pop("OPENAI_BASE_URL", None)
    command = [sys.executable, str(AGENT_LOOP)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "ZeroDivisionError" in ran.stdout
    assert ran.stdout.rstrip().endswith("answer: the mean of no numbers is 0.0, and of 1, 2, 3, 4 it is 2.5")
    assert (fake.ran, fake.objects) == (2, {})
