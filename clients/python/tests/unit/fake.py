"""A small session and a small API server in one, with a directory for a workspace: enough to see what a client sends and does."""

from __future__ import annotations

import base64
import io
import json
import ssl
import tarfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Program = Callable[[dict[str, Any]], tuple[bytes, bytes, int]]


@dataclass
class Said:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What is answered in place of what would be. Without a status, the connection is cut."""

    status: int | None
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Whether the body has no end."""


def problem(reason: str, status: int, message: str = "do something else", **headers: str) -> Answer:
    """A refusal in the API's shape."""
    return Answer(status, {"error": {"reason": reason, "message": message}}, headers)


def _echo(body: dict[str, Any]) -> tuple[bytes, bytes, int]:
    return " ".join(body["command"][1:]).encode() + b"\n", b"", 0


def _cat(body: dict[str, Any]) -> tuple[bytes, bytes, int]:
    if "stdinBase64" in body:
        return base64.b64decode(body["stdinBase64"]), b"", 0
    return body.get("stdin", "").encode(), b"", 0


def _fail(_: dict[str, Any]) -> tuple[bytes, bytes, int]:
    return b"", b"it is \x1b[31mbroken\n", 3


def _bytes(_: dict[str, Any]) -> tuple[bytes, bytes, int]:
    return b"\xff\x00a", b"", 0


class Fake:
    """Both servers' state."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.programs: dict[str, Program] = {
            "echo": _echo,
            "cat": _cat,
            "fail": _fail,
            "bytes": _bytes,
            "python3": _cat,
        }
        self.said: list[Said] = []
        self.instead: list[Answer] = []
        """Answers of the next requests to the session."""
        self.instead_of_cluster: list[Answer] = []
        self.lines: list[bytes] | None = None
        """What a stream says in place of what it would."""
        self.objects: dict[str, dict[str, Any]] = {}
        self.waits: list[dict[str, Any]] = []
        """What the next waits say beside the usual."""
        self.results: dict[str, Any] = {}
        self.ran = 0
        self.waited_for = threading.Event()
        """Set by the first wait."""
        self.lose_after: set[str] = set()
        """Methods whose next request to the API server is carried out, and whose answer is lost."""

    def paths(self, method: str) -> list[str]:
        return [one.path for one in self.said if one.method == method]

    def answer(self, said: Said) -> Answer:
        self.said.append(said)
        if said.path.startswith("/apis/"):
            if self.instead_of_cluster:
                return self.instead_of_cluster.pop(0)
            answer = self._cluster(said)
            if said.method in self.lose_after:
                self.lose_after.discard(said.method)
                return Answer(None)
            return answer
        if said.path.endswith("/wait"):
            self.waited_for.set()
        if self.instead:
            return self.instead.pop(0)
        rest = said.path.split("/")[6:]
        match said.method, rest:
            case "POST", ["exec"]:
                return self._exec(said)
            case "GET", ["wait"]:
                more = self.waits.pop(0) if self.waits else {"reached": True}
                return Answer(200, {**self._status(said), **more})
            case "GET", ["logs"]:
                return Answer(200, b"one\ntwo\n", {"Content-Type": "text/plain"})
            case "GET", []:
                return Answer(200, self._status(said))
            case _, ["files", *what]:
                return self._files(said, what)
        return problem("NoSuchPath", 404)

    def _status(self, said: Said) -> dict[str, Any]:
        name = said.path.split("/")[5]
        made = self.objects.get(name)
        uid = made["metadata"]["uid"] if made else "0"
        return {"namespace": "ns", "name": name, "uid": uid, "phase": "Running", "ready": True, "message": "it runs"}

    def _exec(self, said: Said) -> Answer:
        key = said.headers.get("idempotency-key")
        if key and key in self.results:
            return Answer(200, self.results[key])
        body = said.json
        self.ran += 1
        out, err, code = self.programs[body["command"][0]](body)
        common = {
            "id": f"{self.ran:032x}",
            "outcome": "Exited",
            "exitCode": code,
            "stdoutBytes": len(out),
            "stderrBytes": len(err),
            "truncated": False,
            "durationMs": 5,
        }
        if body.get("stream"):
            lines = self.lines
            if lines is None:
                pieces = [_told("stdout", out), _told("stderr", err)]
                lines = [json.dumps(one).encode() for one in [*pieces, {"result": common}] if one]
            return Answer(200, b"\n".join(lines) + b"\n", {"Content-Type": "application/x-ndjson"})
        answer = {**common, **_told("stdout", out), **_told("stderr", err)}
        if key:
            self.results[key] = answer
        return Answer(200, answer)

    def _files(self, said: Said, what: list[str]) -> Answer:
        path = said.query.get("path", "")
        if ".." in path.split("/") or path.startswith("/"):
            return Answer(400, {"error": {"reason": "InvalidRequest", "message": "expected a path", "field": "path"}})
        at = self.workspace / path
        done = {"id": "1", "bytes": len(said.body), "entries": 1}
        if said.method != "PUT" and not at.exists():
            return problem("NoSuchFile", 404, "there is nothing of this name")
        match said.method, what:
            case "GET", []:
                return Answer(200, at.read_bytes())
            case "PUT", []:
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(said.body)
                return Answer(200, done)
            case "DELETE", []:
                at.unlink()
                return Answer(200, done)
            case "GET", ["entry"]:
                return Answer(200, {**_info(at), "path": path})
            case "GET", ["list"]:
                entries = [_info(one) for one in sorted(at.iterdir())]
                return Answer(200, {"entries": entries, "truncated": False, "skipped": 0})
            case "GET", ["archive"]:
                archive = io.BytesIO()
                with tarfile.open(fileobj=archive, mode="w") as tar:
                    tar.add(at, arcname="")
                return Answer(200, archive.getvalue(), {"Content-Type": "application/x-tar"})
            case "PUT", ["archive"]:
                with tarfile.open(fileobj=io.BytesIO(said.body), mode="r:") as tar:
                    tar.extractall(at, filter="data")
                return Answer(200, done)
        return problem("NoSuchPath", 404)

    def _cluster(self, said: Said) -> Answer:
        name = said.path.split("/")[7] if said.path.count("/") > 6 else ""
        if said.method == "POST":
            made = said.json
            if made["metadata"]["name"] in self.objects:
                return refused("AlreadyExists", 409)
            made["metadata"]["uid"] = str(uuid.uuid4())
            self.objects[made["metadata"]["name"]] = made
            return Answer(201, made)
        found = self.objects.get(name)
        if found is None:
            return refused("NotFound", 404)
        if said.method == "DELETE":
            if said.json["preconditions"]["uid"] != found["metadata"]["uid"]:
                return refused("Conflict", 409)
            del self.objects[name]
            return Answer(200, {"kind": "Status", "status": "Success"})
        if said.method == "PATCH":
            found["spec"].update(said.json["spec"])
        return Answer(200, found)


def refused(reason: str, code: int) -> Answer:
    """As the API server says it."""
    return Answer(code, {"kind": "Status", "status": "Failure", "reason": reason, "message": "no", "code": code})


def _told(name: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}


def _info(at: Path) -> dict[str, Any]:
    kind = "Directory" if at.is_dir() else "File"
    return {"path": at.name, "kind": kind, "size": at.stat().st_size, "mode": "644"}


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = fake.answer(Said(self.command, parts.path, query, headers, self._body()))
            if answer.status is None:
                self.close_connection = True
                return
            whole = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(whole) + (1 if answer.cut else 0)))
            self.end_headers()
            self.wfile.write(whole)
            self.close_connection |= answer.cut

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815

    return Handler


@contextmanager
def served(fake: Fake, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Its port on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
