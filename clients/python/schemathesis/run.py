#!/usr/bin/env python3
"""Holds a session against its own /openapi.json: schemathesis makes requests of the document, good and bad, and compares the answers.

The session and the caller come from GLOVEBOX_SESSION, GLOVEBOX_SESSION_CA, GLOVEBOX_SESSION_TOKEN_FILE and
GLOVEBOX_SESSION_SERVER_NAME, as for the client. GLOVEBOX_TEST_NAMESPACE and GLOVEBOX_TEST_SANDBOX name a sandbox that is there,
with `sh`; its workspace is written to and removed from.

Ends with 0 if nothing was found, with 1 if something was, and with more if it could not try.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
]
SEED = 20261201
REFUSED = (400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429)
"""What a bad request may be answered with."""
MOST_SHOWN = 500
"""Characters of a line: a request may have a path of 4095."""
_SANDBOX = "/v1/namespaces/{namespace}/sandboxes/{name}"
MUST_BE_ACCEPTED = [f"GET {_SANDBOX}", f"POST {_SANDBOX}/exec", f"PUT {_SANDBOX}/files", f"GET {_SANDBOX}/files/list"]
"""Of these, something has to have gone well, or nothing was tried."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-examples", type=int, default=30, help="generated examples of each operation")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--without", action="append", default=[], choices=CHECKS, help="leave a check out; repeatable")
    parser.add_argument("--phases", default="examples,coverage,fuzzing")
    parser.add_argument("more", nargs="*", help="for schemathesis itself, after --")
    options = parser.parse_args()
    try:
        session, sandbox = os.environ["GLOVEBOX_SESSION"], os.environ["GLOVEBOX_TEST_SANDBOX"]
        namespace, _ = os.environ["GLOVEBOX_TEST_NAMESPACE"], os.environ["GLOVEBOX_SESSION_TOKEN_FILE"]
    except KeyError as missing:
        print(f"set {missing.args[0]}", file=sys.stderr)
        return 2
    checks = [check for check in CHECKS if check not in options.without]
    print(f"seed {options.seed}, {options.max_examples} examples, checks: {', '.join(checks)}", flush=True)
    with plain(session) as url, tempfile.TemporaryDirectory() as directory:
        document, report = Path(directory, "openapi.json"), Path(directory, "report.json")
        document.write_text(json.dumps(fixed(fetched(url), namespace, sandbox)), encoding="utf-8")
        Path(directory, "schemathesis.toml").write_text(config(checks), encoding="utf-8")
        command = [
            *(
                sys.executable,
                "-P",
                "-c",
                "from schemathesis.cli import schemathesis; schemathesis()",
                "run",
                str(document),
            ),
            f"--url={url}",
            f"--seed={options.seed}",
            f"--max-examples={options.max_examples}",
            f"--phases={options.phases}",
            "--workers=1",
            "--continue-on-failure",
            "--no-color",
            "--warnings=off",
            "--request-timeout=60",
            "--generation-database=none",
            "--report=json",
            f"--report-json-path={report}",
            *options.more,
        ]
        environment = {
            **os.environ,
            "SCHEMATHESIS_HOOKS": "hooks",
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, encoding="utf-8"
        ) as running:
            for line in running.stdout or ():
                shown = line.rstrip()
                print(shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]} [and more]", flush=True)
        if running.returncode not in (0, 1) or not report.is_file():
            return running.returncode or 2
        return judged(json.loads(report.read_text(encoding="utf-8")))


def config(checks: list[str]) -> str:
    """These checks, and no others. Not as arguments, which would have the statuses forgotten."""
    statuses = ", ".join(f'"{status}"' for status in REFUSED)
    more = {"negative_data_rejection": f"expected-statuses = [{statuses}]\n"}
    chosen = [f"[checks.{check}]\nenabled = true\n{more.get(check, '')}" for check in checks]
    return "\n".join(["[checks]\nenabled = false\n", *chosen])


def judged(report: Any) -> int:
    """What was found, in a list; and whether anything was tried at all."""
    for failure in report["failures"]:
        print(f"found: {failure['title']}, {failure['count']} times: {', '.join(failure['operations'])}")
    for error in report["errors"]:
        print(f"error: {json.dumps(error)[:MOST_SHOWN]}")
    idle = [
        name
        for name in MUST_BE_ACCEPTED
        if not any(one["accepted"] for one in report["valid_rates"].get(name, {}).values())
    ]
    for name in idle:
        print(f"not tried: the session accepted no good request of {name}; is the token good, and the sandbox Ready?")
    count = report["test_cases"]["generated"]
    print(
        f"{count} requests, {len(report['failures'])} findings, {len(report['errors'])} errors, seed {report['seed']}"
    )
    return 1 if report["failures"] or report["errors"] else 3 if idle else 0


def fetched(url: str) -> Any:
    """The document that the session itself gives."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/openapi.json", timeout=30) as answer:
        return json.load(answer)


def fixed(document: Any, namespace: str, sandbox: str) -> Any:
    """The document for one sandbox alone: any other name in a path is a wrong one. No body at all is an empty file, which no server
    can tell from one that is missing."""
    known = {"namespace": namespace, "name": sandbox}
    for operations in document["paths"].values():
        for operation in operations.values():
            body = operation.get("requestBody", {})
            if body and "application/json" not in body["content"]:
                body["required"] = False
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path" and parameter["name"] in known:
                    parameter["schema"] = {"type": "string", "enum": [known[parameter["name"]]]}
    return document


@contextmanager
def plain(session: str) -> Iterator[str]:
    """An address on loopback that speaks HTTP without TLS, behind which TLS is spoken with the session by its certificate's name. So
    neither schemathesis nor what it is built on has to know of another name than that of the address."""
    parts = urlsplit(session)
    host = parts.hostname or ""
    if parts.scheme == "http":
        if host not in ("localhost", "127.0.0.1", "::1"):
            sys.exit("GLOVEBOX_SESSION: http:// is for this machine alone")
        yield session.rstrip("/")
        return
    context = ssl.create_default_context(cafile=os.environ.get("GLOVEBOX_SESSION_CA") or None)
    name = os.environ.get("GLOVEBOX_SESSION_SERVER_NAME") or host
    forwarder = Forwarder(host, parts.port or 443, context, name)
    thread = threading.Thread(target=forwarder.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{forwarder.port()}"
    finally:
        forwarder.stop()
        thread.join()


class Forwarder:
    """Bytes from loopback to TLS and back."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, name: str) -> None:
        self._to = {"host": host, "port": port, "ssl": context, "server_hostname": name}
        self._listens, self._port = threading.Event(), 0
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()

    def port(self) -> int:
        """Where it listens, as soon as it does."""
        self._listens.wait()
        return self._port

    def run(self) -> None:
        """Until it is stopped."""
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def stop(self) -> None:
        """Ends it."""
        self._loop.call_soon_threadsafe(self._end.set)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await self._end.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection(**self._to)  # type: ignore[arg-type]
        except OSError as error:
            print(f"the session can't be reached: {error}", file=sys.stderr, flush=True)
            writer.close()
            return
        await asyncio.gather(_copied(reader, forth), _copied(back, writer))


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # A side that breaks is closed for the other.
    with suppress(OSError, ssl.SSLError):
        while piece := await reader.read(64 * 1024):
            writer.write(piece)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    sys.exit(main())
