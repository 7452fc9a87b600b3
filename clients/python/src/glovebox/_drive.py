"""Carries flows out: one way that blocks, one for asyncio and trio. All I/O of the package but that of local directories."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx
import httpx2
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from . import _cluster as cluster
from ._errors import ConfigError, ConnectionLost, ProtocolError
from ._session import Session
from ._wire import SMALL, Answer, Collected, Decoder, Effect, Flow, Request, Sleep, T, ToCluster, status_of_cluster

_CONNECT = 10.0
_WRITE = 60.0
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_TO_API = "the API server"
_TO_SESSION = "the session"


def _client_options(session: Session) -> dict[str, Any]:
    return {
        "base_url": session.url,
        "verify": session.ssl_context or True,
        "trust_env": session.trust_env,
        "follow_redirects": False,
    }


def _request_options(session: Session, request: Request) -> dict[str, Any]:
    timeout = {"connect": _CONNECT, "read": request.read_timeout, "write": _WRITE, "pool": _CONNECT}
    # As it is: what unpacks itself has no bound until it is unpacked.
    headers = {"Accept-Encoding": "identity", **request.headers, **session.authorization()}
    extensions = {"timeout": timeout, **session.extensions}
    return {"params": dict(request.query), "headers": headers, "extensions": extensions}


def _collected(request: Request, response: httpx.Response) -> Collected:
    _plain(response)
    return Collected(request.most if response.is_success else SMALL)


def _plain(response: httpx.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ProtocolError("the answer is compressed, which was not asked for; is there a proxy in between?")


def _answer(response: httpx.Response, body: bytes, opened: httpx.Response | None = None) -> Answer:
    return Answer(response.status_code, response.headers, body, opened)


@contextmanager
def _told(whom: str) -> Iterator[None]:
    """What goes wrong on the way, in this package's words."""
    try:
        yield
    except LightkubeConfigError as error:
        raise ConfigError(f"the kubeconfig's credentials can't be had: {error}") from error
    except (httpx.TransportError, httpx2.TransportError) as error:
        cause = _certificate(error)
        if cause is not None:
            hint = "name who vouches for it by ca= (GLOVEBOX_SESSION_CA), and another name by server_name="
            why = f"{whom}'s certificate is not good: {cause.verify_message}"
            raise ConfigError(f"{why}; {hint}" if whom == _TO_SESSION else why) from error
        sent = not isinstance(error, (*_NOT_SENT, httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))
        may = "the request may have been carried out" if sent else "nothing was sent; is the address right?"
        raise ConnectionLost(
            f"{whom} gave no whole answer ({type(error).__name__}: {error}): {may}", sent=sent
        ) from error


def _certificate(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    for _ in range(10):
        if error is None or isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _to_cluster(request: ToCluster) -> dict[str, Any]:
    content = None if request.body is None else json.dumps(request.body).encode()
    return {"content": content, "headers": {"Content-Type": request.content_type, "Accept": "application/json"}}


def _from_cluster(response: httpx2.Response) -> dict[str, Any]:
    if not response.is_success:
        raise status_of_cluster(response.status_code, response.content)
    try:
        said = response.json()
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ProtocolError("the API server's answer is no object; is the kubeconfig's address right?")
    return said


class _Ways:
    """Where the session and the cluster are. The cluster only matters to whoever makes, extends or deletes."""

    def __init__(self, session: Session | None, kubeconfig: str | os.PathLike[str] | None, context: str | None) -> None:
        self.session = session or Session.from_env()
        self._named = (kubeconfig, context)
        self._config: Any = None

    @property
    def config(self) -> Any:
        """How the API server is reached, read when it is first asked for."""
        if self._config is None:
            self._config = cluster.load(*self._named)
        return self._config

    @property
    def namespace(self) -> str:
        """That of the kubeconfig's context."""
        return str(self.config.namespace)


class Driver(_Ways):
    """Blocks. May be used by several threads."""

    def __init__(
        self,
        session: Session | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
    ) -> None:
        super().__init__(session, kubeconfig, context)
        self._client = httpx.Client(**_client_options(self.session))
        self._cluster: httpx2.Client | None = None

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def run(self, flow: Flow[T]) -> T:
        """Carries a flow out."""
        step: Callable[[Any], Effect]
        value: Any
        step, value = flow.send, None
        while True:
            try:
                effect = step(value)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step, value = flow.send, self._perform(effect)
            except Exception as error:  # noqa: BLE001 - the flow decides what it means
                step, value = flow.throw, error

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return self._send(effect)
            case ToCluster():
                return self._ask(effect)
            case Sleep(seconds=seconds):
                time.sleep(seconds)
        return None

    def _send(self, request: Request) -> Answer:
        body = request.body
        content = None if body is None else body.whole if body.whole is not None else body.pieces()
        options = _request_options(self.session, request)
        with _told(_TO_SESSION):
            built = self._client.build_request(request.method, request.path, content=content, **options)
            response = self._client.send(built, stream=True)
            if request.streams and response.is_success:
                return _answer(response, b"", response)
            try:
                collected = _collected(request, response)
                for piece in response.iter_raw():
                    collected.add(piece)
            finally:
                response.close()
        return _answer(response, collected.done())

    def _ask(self, request: ToCluster) -> dict[str, Any]:
        if self._cluster is None:
            self._cluster = cluster.sync_client(self.config)
        with _told(_TO_API):
            return _from_cluster(self._cluster.request(request.method, request.path, **_to_cluster(request)))

    def stream(self, flow: Flow[Answer], decoder: Decoder[T]) -> Generator[T, None, None]:
        """What a decoder makes of an answer, piece by piece. Closing it hangs up."""
        response: httpx.Response = self.run(flow).opened
        try:
            _plain(response)
            with _told(_TO_SESSION):
                for piece in response.iter_raw():
                    yield from decoder.feed(piece)
            decoder.end()
        finally:
            response.close()


class AsyncDriver(_Ways):
    """The same under asyncio and trio."""

    def __init__(
        self,
        session: Session | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
    ) -> None:
        super().__init__(session, kubeconfig, context)
        self._client = httpx.AsyncClient(**_client_options(self.session))
        self._cluster: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()
        if self._cluster is not None:
            await self._cluster.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """Carries a flow out."""
        step: Callable[[Any], Effect]
        value: Any
        step, value = flow.send, None
        while True:
            try:
                effect = step(value)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step, value = flow.send, await self._perform(effect)
            except Exception as error:  # noqa: BLE001 - the flow decides what it means
                step, value = flow.throw, error

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return await self._send(effect)
            case ToCluster():
                return await self._ask(effect)
            case Sleep(seconds=seconds):
                await anyio.sleep(seconds)
        return None

    async def _send(self, request: Request) -> Answer:
        body = request.body
        content = None if body is None else body.whole if body.whole is not None else _pieces(body.piece)
        options = _request_options(self.session, request)
        with _told(_TO_SESSION):
            built = self._client.build_request(request.method, request.path, content=content, **options)
            response = await self._client.send(built, stream=True)
            if request.streams and response.is_success:
                return _answer(response, b"", response)
            try:
                collected = _collected(request, response)
                async with aclosing(_raw(response)) as pieces:
                    async for piece in pieces:
                        collected.add(piece)
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
        return _answer(response, collected.done())

    async def _ask(self, request: ToCluster) -> dict[str, Any]:
        if self._cluster is None:
            self._cluster = cluster.async_client(self.config)
        with _told(_TO_API):
            return _from_cluster(await self._cluster.request(request.method, request.path, **_to_cluster(request)))

    async def stream(self, flow: Flow[Answer], decoder: Decoder[T]) -> AsyncGenerator[T, None]:
        """What a decoder makes of an answer, piece by piece. Closing it hangs up."""
        response: httpx.Response = (await self.run(flow)).opened
        try:
            _plain(response)
            with _told(_TO_SESSION):
                async with aclosing(_raw(response)) as pieces:
                    async for piece in pieces:
                        for made in decoder.feed(piece):
                            yield made
            decoder.end()
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


def _raw(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """An async generator that is left open is closed by nobody under trio."""
    return cast(AsyncGenerator[bytes, None], response.aiter_raw())


async def _pieces(piece: Any) -> AsyncIterator[bytes]:
    """A file is read in a thread: it may be slow."""
    while found := await anyio.to_thread.run_sync(piece):
        yield found
