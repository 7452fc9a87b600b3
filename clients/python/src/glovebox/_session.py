"""Where the session is, who vouches for it, and who calls.

Must never let a token leave this machine without TLS, nor show it.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from ._errors import ConfigError

IN_A_POD = "https://glovebox-session.glovebox-system.svc"
"""The session's Service, as the chart names it in its usual namespace. Its port is 443."""

POD_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where a pod finds its service account's token."""


@dataclass(frozen=True)
class Session:
    """A way to the session. Opens nothing; each sandbox has connections of its own."""

    url: str
    """`https://HOST[:PORT]`; `http://` for this machine alone."""
    token: str | None = field(default=None, repr=False)
    """A token of Kubernetes."""
    token_file: str | os.PathLike[str] | None = None
    """A file with one. Read for each request, since tokens rotate."""
    ca: str | os.PathLike[str] | None = None
    """A file with the certificates that vouch for the session; otherwise those that the system trusts."""
    server_name: str | None = None
    """The name that the session's certificate is for, where the address is another, such as a port-forward's."""
    cert: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None
    """Files with a client certificate and its key, in place of a token."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            port_is_fine = parts.port is None or parts.port > 0
        except ValueError:
            port_is_fine = False
        bare = parts.path in ("", "/") and not parts.query and not parts.fragment and "@" not in parts.netloc
        if parts.scheme not in ("https", "http") or not parts.hostname or not bare or not port_is_fine:
            raise ConfigError(f"{self.url!r}: expected https://HOST or https://HOST:PORT, and nothing more")
        if not self.tls and not _is_here(parts.hostname):
            raise ConfigError(
                f"{self.url}: without TLS a token could be read on its way; http:// is for this machine alone"
            )
        if (self.token, self.token_file, self.cert).count(None) != 2:
            raise ConfigError("name one of token, token_file and cert: it says who calls")
        if not self.tls and self.cert:
            raise ConfigError("a client certificate can be shown over TLS alone; use https://, or a token")
        if not self.tls and (self.ca or self.server_name):
            raise ConfigError("ca and server_name are for https://")

    @property
    def tls(self) -> bool:
        """Whether TLS is spoken."""
        return urlsplit(self.url).scheme == "https"

    @classmethod
    def from_env(cls) -> Session:
        """As GLOVEBOX_SESSION, GLOVEBOX_SESSION_CA, GLOVEBOX_SESSION_TOKEN_FILE and GLOVEBOX_SESSION_SERVER_NAME say; in a pod,
        the session's Service and the pod's own token where they say nothing."""
        said = {
            name: os.environ.get(f"GLOVEBOX_SESSION{name}") or None
            for name in ("", "_CA", "_TOKEN_FILE", "_SERVER_NAME")
        }
        in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ and POD_TOKEN.is_file()
        url = said[""] or (IN_A_POD if in_a_pod else None)
        token_file = said["_TOKEN_FILE"] or (POD_TOKEN if in_a_pod else None)
        if url is None:
            raise ConfigError(
                "where is the session? Set GLOVEBOX_SESSION to https://HOST, or pass session=Session(url, ...)"
            )
        if token_file is None:
            raise ConfigError(
                "who calls? Set GLOVEBOX_SESSION_TOKEN_FILE to a file with a token, such as one of `kubectl create token`"
            )
        return cls(url, token_file=token_file, ca=said["_CA"], server_name=said["_SERVER_NAME"])

    def authorization(self) -> dict[str, str]:
        """The header that says who calls, read anew."""
        token = self.token
        if self.token_file is not None:
            try:
                token = Path(self.token_file).read_text(encoding="ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"the token can't be read from {self.token_file}: {type(error).__name__}") from error
        if token is None:
            return {}
        token = token.strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError("the token is empty, or is none")
        return {"Authorization": f"Bearer {token}"}

    @cached_property
    def ssl_context(self) -> ssl.SSLContext | None:
        """Verifies the session's certificate and name, always."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(*self.cert)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"ca or cert can't be read as certificates: {error}") from error
        return context

    @property
    def extensions(self) -> dict[str, str]:
        """What each request tells the connection: with which name TLS is to be spoken, and the certificate compared."""
        return {"sni_hostname": self.server_name} if self.server_name else {}

    @property
    def trust_env(self) -> bool:
        """Whether proxies of the environment are used. One without TLS would see the token, and through one the name of the
        certificate can't be another than that of the address."""
        return self.tls and self.server_name is None


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
