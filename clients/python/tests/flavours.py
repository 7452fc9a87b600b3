"""Each test is written once, against the blocking surface; the awaited one is put behind it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

import glovebox
from glovebox import tools


class Flavour:
    """The names of one surface."""

    Sandbox: Any = glovebox.Sandbox
    PythonTool: Any = tools.PythonTool
    ShellTool: Any = tools.ShellTool


class _Blocking:
    """An awaited object, as one that blocks: its coroutines, iterators and context managers."""

    def __init__(self, portal: BlockingPortal, inner: Any) -> None:
        self._portal, self.inner = portal, inner

    def __getattr__(self, name: str) -> Any:
        return _blocking(self._portal, getattr(self.inner, name))

    def __enter__(self) -> Any:
        self._context = self._portal.wrap_async_context_manager(self.inner)
        return _blocking(self._portal, self._context.__enter__())

    def __exit__(self, *error: Any) -> Any:
        return self._context.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._portal.call(self.inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self._portal.call(self.inner.aclose if hasattr(self.inner, "aclose") else self.inner.close)


def _blocking(portal: BlockingPortal, value: Any) -> Any:
    if hasattr(value, "__anext__") or type(value).__name__.startswith(("Async", "_Async")):
        return _Blocking(portal, value)
    if not callable(value):
        return value

    def call(*args: Any, **options: Any) -> Any:
        given = [one.inner if isinstance(one, _Blocking) else one for one in args]

        async def made() -> Any:
            result = value(*given, **options)
            return await result if inspect.isawaitable(result) else result

        return _blocking(portal, portal.call(made))

    return call


@contextmanager
def flavour(name: str) -> Iterator[Flavour]:
    """The surface of this name: `sync`, or the backend of an async one."""
    made = Flavour()
    if name == "sync":
        yield made
        return
    with start_blocking_portal(name) as portal:
        made.Sandbox = _Class(portal, glovebox.AsyncSandbox)
        made.PythonTool = _blocking(portal, tools.AsyncPythonTool)
        made.ShellTool = _blocking(portal, tools.AsyncShellTool)
        yield made


class _Class:
    def __init__(self, portal: BlockingPortal, kind: type[glovebox.AsyncSandbox]) -> None:
        self.create = _blocking(portal, kind.create)
        self.attach = _blocking(portal, kind.attach)
