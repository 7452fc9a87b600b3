"""A fake for each test, and each test for both surfaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake import Fake, served
from flavours import Flavour, flavour

from glovebox import Session

TOKEN = "a-token"


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Fake(workspace)


@pytest.fixture
def session(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The way to the fake; KUBECONFIG leads to it, too."""
    with served(fake) as port:
        url = f"http://127.0.0.1:{port}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            f"""
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: for-the-cluster}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u, namespace: ns}}}}]
current-context: x
"""
        )
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield Session(url, token=TOKEN)


@pytest.fixture(params=["sync", "asyncio", "trio"])
def surface(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    with flavour(request.param) as made:
        yield made


@pytest.fixture
def sandbox(surface: Flavour, session: Session) -> Iterator[Any]:
    """One that is there."""
    with surface.Sandbox.attach("ns", "box", session=session) as sandbox:
        yield sandbox
