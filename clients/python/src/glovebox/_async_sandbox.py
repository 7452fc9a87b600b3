"""A sandbox for callers under asyncio and trio: what `Sandbox` is, awaited."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import IO, Unpack

import anyio
import anyio.to_thread

from . import _calls as calls
from . import _cluster as cluster
from . import _models as models
from . import _trees as trees
from ._drive import AsyncDriver
from ._errors import GloveboxError
from ._results import Event, ExecResult
from ._session import Session
from ._span import Span
from ._wire import AsTheyCome, sent

_FAREWELL = 30.0
"""Seconds that a deletion may take which goes on although its task was cancelled."""


class AsyncSandbox:
    """A sandbox that takes calls.

    `async with AsyncSandbox.create(image=...) as sandbox:` makes one and deletes it at the end, also when its task is cancelled.
    `async with AsyncSandbox.attach(namespace, name) as sandbox:` uses one that is there, which stays.
    """

    def __init__(self, driver: AsyncDriver, place: calls.Place) -> None:
        """Not to be called: see `create` and `attach`."""
        self._driver = driver
        self._place = place
        self.files = AsyncFiles(driver, place)

    @classmethod
    @asynccontextmanager
    async def create(
        cls, image: str, *, session: Session | None = None, **options: Unpack[cluster.CreateOptions]
    ) -> AsyncIterator[AsyncSandbox]:
        """Makes a sandbox, waits until it takes calls, and deletes it at the end."""
        driver = AsyncDriver(session, options.get("kubeconfig"), options.get("context"))
        try:
            plan = cluster.Plan.of(image, driver.namespace, options)
            try:
                await driver.run(cluster.create(plan))
                yield cls(driver, plan.place)
            except BaseException as error:
                try:
                    await _deleted(driver, plan)
                except GloveboxError as left:
                    error.add_note(f"besides: {left}; {'; '.join(left.__notes__)}")
                raise
            await _deleted(driver, plan)
        finally:
            with anyio.CancelScope(shield=True):
                await driver.close()

    @classmethod
    def attach(
        cls,
        namespace: str,
        name: str,
        *,
        session: Session | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
    ) -> AsyncSandbox:
        """One that is there. It is not deleted; the kubeconfig is only looked at by `extend`."""
        return cls(AsyncDriver(session, kubeconfig, context), calls.Place(namespace, name))

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Deletes nothing."""
        with anyio.CancelScope(shield=True):
            await self._driver.close()

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self._place.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self._place.name

    async def exec(self, command: Sequence[str], **options: Unpack[calls.ExecOptions]) -> ExecResult:
        """Has a command run, and gives its result, be it a bad one: look at `ok`, or say `check=True`."""
        return await self._driver.run(calls.exec_(self._place, command, **options))

    def stream(self, command: Sequence[str], **options: Unpack[calls.CommandOptions]) -> AsyncGenerator[Event, None]:
        """Has a command run, and yields its output as it is written, and its result last. Whoever closes the iterator
        (`contextlib.aclosing`) ends the command. Never tried again after a connection that broke."""
        request = calls.stream(self._place, command, **options)
        return self._driver.stream(sent(request), calls.Events())

    def logs(self, **options: Unpack[calls.LogOptions]) -> AsyncGenerator[bytes, None]:
        """What the workload has written, in pieces as they come."""
        return self._driver.stream(sent(calls.logs(self._place, **options)), AsTheyCome())

    async def status(self) -> models.SandboxStatus:
        """Where it stands."""
        return await self._driver.run(calls.status(self._place))

    async def wait(self, for_: models.WaitFor = "Ready", timeout: Span = "5m") -> models.SandboxStatus:
        """Waits until it takes calls, or has ended, or the time is over: `reached` says which."""
        return await self._driver.run(calls.wait(self._place, for_, timeout))

    async def extend(self, ttl: Span) -> None:
        """Another time to live, counted from when it was made. Longer only where its class says `extendable`."""
        await self._driver.run(cluster.extend(self._place, ttl))


async def _deleted(driver: AsyncDriver, plan: cluster.Plan) -> None:
    with anyio.move_on_after(_FAREWELL, shield=True):
        await driver.run(cluster.delete(plan))


class AsyncFiles:
    """The files of a sandbox's workspace. Paths are below it, such as `src/main.py`. Times are the session's to hold, as for calls."""

    def __init__(self, driver: AsyncDriver, place: calls.Place) -> None:
        self._driver = driver
        self._place = place

    async def read(self, path: str, *, timeout: Span | None = None, max_bytes: int = calls.MOST_TRANSFER) -> bytes:
        """What a file holds."""
        return await self._driver.run(calls.read_file(self._place, path, timeout=timeout, max_bytes=max_bytes))

    async def write(
        self, path: str, data: bytes | str | IO[bytes], **options: Unpack[calls.WriteOptions]
    ) -> models.FileDone:
        """Makes a file, or replaces one: all of it at once, when the last byte has come."""
        return await self._driver.run(calls.write_file(self._place, path, data, **options))

    async def list(self, path: str = "", *, timeout: Span | None = None) -> models.FileList:
        """What is in a directory: at most 10,000 entries, `truncated` says whether there are more."""
        return await self._driver.run(calls.list_files(self._place, path, timeout=timeout))

    async def stat(self, path: str = "", *, timeout: Span | None = None) -> models.FileInfo:
        """What is at a path. A link is told as one."""
        return await self._driver.run(calls.stat_file(self._place, path, timeout=timeout))

    async def delete(self, path: str, *, recursive: bool = False, timeout: Span | None = None) -> models.FileDone:
        """Removes a file, a link or a directory."""
        return await self._driver.run(calls.delete_file(self._place, path, recursive=recursive, timeout=timeout))

    async def upload_archive(
        self,
        archive: bytes | IO[bytes],
        path: str = "",
        *,
        timeout: Span | None = None,
    ) -> models.FileDone:
        """Makes what a tar archive holds, below a directory."""
        return await self._driver.run(calls.upload_archive(self._place, archive, path, timeout=timeout))

    def download_archive(
        self, path: str = "", *, timeout: Span | None = None, max_bytes: int = calls.MOST_ARCHIVE
    ) -> AsyncGenerator[bytes, None]:
        """What is below a directory as a tar archive, in pieces. One that breaks off raises, and is no archive."""
        request = calls.download_archive(self._place, path, timeout=timeout)
        return self._driver.stream(sent(request), AsTheyCome(max_bytes))

    async def upload_dir(
        self,
        local: str | os.PathLike[str],
        path: str = "",
        *,
        skip_links: bool = False,
        timeout: Span | None = None,
    ) -> models.FileDone:
        """Files and directories below a local directory, to a directory of the workspace, which is made if it is missing."""
        with await anyio.to_thread.run_sync(partial(trees.pack, local, skip_links=skip_links)) as archive:
            return await self.upload_archive(archive, path, timeout=timeout)

    async def download_dir(
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
            async with aclosing(self.download_archive(path, timeout=timeout, max_bytes=max_bytes)) as pieces:
                async for piece in pieces:
                    await anyio.to_thread.run_sync(archive.write, piece)
            await anyio.to_thread.run_sync(trees.unpack, archive, local)
