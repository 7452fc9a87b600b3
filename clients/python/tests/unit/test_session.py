"""Who is told a token, and by which name the session is known."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from fake import Fake, served
from flavours import Flavour

import glovebox
from glovebox import Session, _session
from glovebox._wire import Patience

NAMES = ["glovebox-session.glovebox-system.svc", "localhost"]


@pytest.mark.parametrize(
    "url",
    ["http://example.com", "http://10.0.0.1", "https://", "https://a@b", "https://a/b", "ftp://a", "https://a:x", "a"],
)
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(glovebox.ConfigError):
        Session(url, token="t")


def test_one_caller_and_not_more() -> None:
    for more in ({}, {"token": "t", "token_file": "f"}, {"token": "t", "cert": ("a", "b")}):
        with pytest.raises(glovebox.ConfigError, match="one of"):
            Session("https://a", **more)
    with pytest.raises(glovebox.ConfigError, match="TLS"):
        Session("http://127.0.0.1", cert=("a", "b"))
    assert Session("http://[::1]:8080", token="t").tls is False
    assert "secret" not in repr(Session("https://a", token="secret"))


def test_tokens_that_are_none(tmp_path: Path) -> None:
    for token in ("", " ", "a b", "a\nb", "ä"):
        with pytest.raises(glovebox.ConfigError):
            Session("https://a", token=token).authorization()
    with pytest.raises(glovebox.ConfigError, match="can't be read"):
        Session("https://a", token_file=tmp_path / "none").authorization()


def test_a_token_that_rotates(surface: Flavour, session: Session, fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    with surface.Sandbox.attach("ns", "box", session=Session(session.url, token_file=file)) as sandbox:
        sandbox.status()
        file.write_text("second\n")
        sandbox.status()
    assert [said.headers["authorization"] for said in fake.said] == ["Bearer first", "Bearer second"]


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("", "_CA", "_TOKEN_FILE", "_SERVER_NAME"):
        monkeypatch.delenv(f"GLOVEBOX_SESSION{name}", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(glovebox.ConfigError, match="GLOVEBOX_SESSION"):
        Session.from_env()
    token = tmp_path / "token"
    token.write_text("of-the-pod")
    monkeypatch.setattr(_session, "POD_TOKEN", token)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert Session.from_env() == Session("https://glovebox-session.glovebox-system.svc", token_file=token)
    monkeypatch.setenv("GLOVEBOX_SESSION", "https://127.0.0.1:8444")
    monkeypatch.setenv("GLOVEBOX_SESSION_CA", "ca.crt")
    monkeypatch.setenv("GLOVEBOX_SESSION_TOKEN_FILE", "token")
    monkeypatch.setenv("GLOVEBOX_SESSION_SERVER_NAME", "a.example")
    assert Session.from_env() == Session(
        "https://127.0.0.1:8444", token_file="token", ca="ca.crt", server_name="a.example"
    )


def test_no_proxy_sees_a_token_without_tls(
    surface: Flavour, session: Session, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with surface.Sandbox.attach("ns", "box", session=session) as sandbox:
        assert sandbox.status().ready
    assert len(fake.said) == 1


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    return authority


def test_the_certificate_is_compared_with_the_name(
    surface: Flavour, fake: Fake, authority: trustme.CA, tmp_path: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*NAMES).configure_cert(tls)
    names: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    ca = tmp_path / "ca.crt"

    def ask(url: str, **more: Any) -> str:
        with surface.Sandbox.attach("ns", "box", session=Session(url, token="t", **more)) as sandbox:
            return str(sandbox.status().phase)

    with served(fake, tls) as port:
        address = f"https://127.0.0.1:{port}"
        assert ask(address, ca=ca, server_name=NAMES[0]) == "Running"
        assert names == [NAMES[0]]
        assert ask(f"https://localhost:{port}", ca=ca) == "Running"
        # Another name, none, and nobody who vouches: each time nothing is said.
        for more in ({"ca": ca, "server_name": "evil.example"}, {"ca": ca}, {"server_name": NAMES[0]}):
            with pytest.raises(glovebox.ConfigError, match="certificate is not good"):
                ask(address, **more)
    assert len(fake.said) == 2


def test_a_client_certificate_in_place_of_a_token(
    surface: Flavour, fake: Fake, authority: trustme.CA, tmp_path: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    mine = authority.issue_cert("me@example.com")
    files = (tmp_path / "my.crt", tmp_path / "my.key")
    mine.cert_chain_pems[0].write_to_path(str(files[0]))
    mine.private_key_pem.write_to_path(str(files[1]))
    with served(fake, tls) as port:
        session = Session(f"https://localhost:{port}", ca=tmp_path / "ca.crt", cert=files)
        with surface.Sandbox.attach("ns", "box", session=session) as sandbox:
            assert sandbox.status().ready
    assert "authorization" not in fake.said[0].headers


def test_nobody_at_the_address(surface: Flavour) -> None:
    nobody = Session("http://127.0.0.1:1", token="t")
    with (
        surface.Sandbox.attach("ns", "box", session=nobody) as sandbox,
        pytest.raises(glovebox.ConnectionLost, match="nothing was sent") as caught,
    ):
        sandbox.exec(["echo"])
    assert not caught.value.sent


def test_patience_is_bounded_in_time() -> None:
    now = 0.0
    patience = Patience(times=100, total=30, clock=lambda: now)
    assert patience.pause(10) == 10
    now = 25
    assert patience.pause(10) is None
    assert patience.pause(1) == 1


@pytest.mark.parametrize("name", ["", "..", "A", "a/b", "a?b", "a%2e"])
def test_names_that_are_none(name: str, session: Session) -> None:
    with pytest.raises(ValueError, match="no name"):
        glovebox.Sandbox.attach("ns", name, session=session)
