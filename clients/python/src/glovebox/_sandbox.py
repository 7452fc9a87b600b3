"""A sandbox for callers that block."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Unpack

from . import _calls as calls
from . import _cluster as cluster
from . import _models as models
from . import _trees as trees
from ._drive import Driver
from ._errors import GloveboxError
from ._results import Event, ExecResult
from ._session import Session
from ._span import Span
from ._wire import AsTheyCome, sent


class Sandbox:
    """A sandbox that takes calls. May be used by several threads.

    `with Sandbox.create(image=...) as sandbox:` makes one and deletes it at the end, whatever happens.
    `with Sandbox.attach(namespace, name) as sandbox:` uses one that is there, which stays.
    """

    def __init__(self, driver: Driver, place: calls.Place) -> None:
        """Not to be called: see `create` and `attach`."""
        self._driver = driver
        self._place = place
        self.files = Files(driver, place)

    @classmethod
    @contextmanager
    def create(
        cls, image: str, *, session: Session | None = None, **options: Unpack[cluster.CreateOptions]
    ) -> Iterator[Sandbox]:
        """Makes a sandbox, waits until it takes calls, and deletes it at the end."""
        driver = Driver(session, options.get("kubeconfig"), options.get("context"))
        try:
            plan = cluster.Plan.of(image, driver.namespace, options)
            try:
                driver.run(cluster.create(plan))
                yield cls(driver, plan.place)
            except BaseException as error:
                try:
                    driver.run(cluster.delete(plan))
                except GloveboxError as left:
                    error.add_note(f"besides: {left}; {'; '.join(left.__notes__)}")
                raise
            driver.run(cluster.delete(plan))
        finally:
            driver.close()

    @classmethod
    def attach(
        cls,
        namespace: str,
        name: str,
        *,
        session: Session | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
    ) -> Sandbox:
        """One that is there. It is not deleted; the kubeconfig is only looked at by `extend`."""
        return cls(Driver(session, kubeconfig, context), calls.Place(namespace, name))

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Deletes nothing."""
        self._driver.close()

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self._place.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self._place.name

    def exec(self, command: Sequence[str], **options: Unpack[calls.ExecOptions]) -> ExecResult:
        """Has a command run, and gives its result, be it a bad one: look at `ok`, or say `check=True`."""
        return self._driver.run(calls.exec_(self._place, command, **options))

    def stream(self, command: Sequence[str], **options: Unpack[calls.CommandOptions]) -> Generator[Event, None, None]:
        """Has a command run, and yields its output as it is written, and its result last. Whoever closes the iterator, or leaves it
        to be collected, ends the command. Never tried again after a connection that broke."""
        request = calls.stream(self._place, command, **options)
        return self._driver.stream(sent(request), calls.Events())

    def logs(self, **options: Unpack[calls.LogOptions]) -> Generator[bytes, None, None]:
        """What the workload has written, in pieces as they come."""
        return self._driver.stream(sent(calls.logs(self._place, **options)), AsTheyCome())

    def status(self) -> models.SandboxStatus:
        """Where it stands."""
        return self._driver.run(calls.status(self._place))

    def wait(self, for_: models.WaitFor = "Ready", timeout: Span = "5m") -> models.SandboxStatus:
        """Waits until it takes calls, or has ended, or the time is over: `reached` says which."""
        return self._driver.run(calls.wait(self._place, for_, timeout))

    def extend(self, ttl: Span) -> None:
        """Another time to live, counted from when it was made. Longer only where its class says `extendable`."""
        self._driver.run(cluster.extend(self._place, ttl))


class Files:
    """The files of a sandbox's workspace. Paths are below it, such as `src/main.py`."""

    def __init__(self, driver: Driver, place: calls.Place) -> None:
        self._driver = driver
        self._place = place

    def read(self, path: str, *, timeout: Span | None = None, max_bytes: int = calls.MOST_TRANSFER) -> bytes:
        """What a file holds."""
        return self._driver.run(calls.read_file(self._place, path, timeout=timeout, max_bytes=max_bytes))

    def write(self, path: str, data: bytes | str | IO[bytes], **options: Unpack[calls.WriteOptions]) -> models.FileDone:
        """Makes a file, or replaces one: all of it at once, when the last byte has come."""
        return self._driver.run(calls.write_file(self._place, path, data, **options))

    def list(self, path: str = "", *, timeout: Span | None = None) -> models.FileList:
        """What is in a directory: at most 10,000 entries, `truncated` says whether there are more."""
        return self._driver.run(calls.list_files(self._place, path, timeout=timeout))

    def stat(self, path: str = "", *, timeout: Span | None = None) -> models.FileInfo:
        """What is at a path. A link is told as one."""
        return self._driver.run(calls.stat_file(self._place, path, timeout=timeout))

    def delete(self, path: str, *, recursive: bool = False, timeout: Span | None = None) -> models.FileDone:
        """Removes a file, a link or a directory."""
        return self._driver.run(calls.delete_file(self._place, path, recursive=recursive, timeout=timeout))

    def upload_archive(
        self, archive: bytes | IO[bytes], path: str = "", *, timeout: Span | None = None
    ) -> models.FileDone:
        """Makes what a tar archive holds, below a directory."""
        return self._driver.run(calls.upload_archive(self._place, archive, path, timeout=timeout))

    def download_archive(
        self, path: str = "", *, timeout: Span | None = None, max_bytes: int = calls.MOST_ARCHIVE
    ) -> Generator[bytes, None, None]:
        """What is below a directory as a tar archive, in pieces. One that breaks off raises, and is no archive."""
        request = calls.download_archive(self._place, path, timeout=timeout)
        return self._driver.stream(sent(request), AsTheyCome(max_bytes))

    def upload_dir(
        self,
        local: str | os.PathLike[str],
        path: str = "",
        *,
        skip_links: bool = False,
        timeout: Span | None = None,
    ) -> models.FileDone:
        """Files and directories below a local directory, to a directory of the workspace, which is made if it is missing."""
        with trees.pack(local, skip_links=skip_links) as archive:
            return self.upload_archive(archive, path, timeout=timeout)

    def download_dir(
        self,
        path: str,
        local: str | os.PathLike[str],
        *,
        timeout: Span | None = None,
        max_bytes: int = calls.MOST_ARCHIVE,
    ) -> None:
        """Files and directories below a directory of the workspace, to a local one, which is made if it is missing. Nothing is
        written before all of it has come; links and special files do not come."""
        with trees.spool() as archive:
            for piece in self.download_archive(path, timeout=timeout, max_bytes=max_bytes):
                archive.write(piece)
            trees.unpack(archive, local)
