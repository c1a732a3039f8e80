"""A broker on a loopback socket that responds exactly as a test scripts it.

    async with ScriptedBroker(answer) as broker:      # answer(session, request), sync
        client = await network(broker)

Without a script it responds to ApiVersions and Metadata like a good broker. `until` waits for a
condition on what it received; nothing here sleeps. Used by the network tests of all rings.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from kclient.protocol.headers import RequestHeader, decode_request_header
from kclient.protocol.message import Response
from kclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kclient.protocol.messages.metadata import MetadataResponse
from tests.support.response_frames import encode_response

API_VERSIONS, METADATA = 18, 3
SPOKEN = (
    *(ApiVersion(0, 0, 11), ApiVersion(1, 0, 13), ApiVersion(3, 0, 12), ApiVersion(12, 0, 4)),
    ApiVersion(API_VERSIONS, 0, 4),
)
WAIT = 10.0
"""Seconds after which a test that waits for a condition has failed."""


class Received:
    """A request that arrived."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.header: RequestHeader = decode_request_header(frame)
        self.api_key = self.header.api_key
        self.version = self.header.api_version
        self.correlation_id = self.header.correlation_id


class Session:
    """One accepted connection."""

    def __init__(self, broker: ScriptedBroker, writer: asyncio.StreamWriter) -> None:
        self.broker = broker
        self.writer = writer
        self.requests: list[Received] = []

    def reply(self, request: Received, response: Response) -> None:
        """Respond to a request."""
        self.send(encode_response(response, request.version, request.correlation_id))

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        self.writer.write(data)

    def stop_reading(self) -> None:
        """Leave what the client sends in the socket."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        """Undo ``stop_reading``."""
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    def hang_up(self) -> None:
        """Close gracefully."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection."""
        self.writer.transport.abort()


Script = Callable[[Session, Received], None]


def good_answer(session: Session, request: Received) -> None:
    """Respond like a good broker."""
    if request.api_key == API_VERSIONS:
        session.reply(request, ApiVersionsResponse(0, list(SPOKEN)))
    else:
        session.reply(request, MetadataResponse(cluster_id="scripted"))


def silent_but_for_versions(session: Session, request: Received) -> None:
    """Negotiate versions, and respond to nothing else."""
    if request.api_key == API_VERSIONS:
        good_answer(session, request)


class ScriptedBroker:
    """Listens on 127.0.0.1 at a port that the system chooses.

    Args:
        script: Called with each request.
        greet: Called with each session as it is accepted, before any request.
        ssl_context: For TLS.
        reads: False leaves all requests unread in the socket.
    """

    def __init__(
        self,
        script: Script = good_answer,
        *,
        greet: Callable[[Session], None] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        reads: bool = True,
    ) -> None:
        self.script = script
        self.sessions: list[Session] = []
        self.requests: list[Received] = []
        self._greet = greet
        self._ssl_context = ssl_context
        self._reads = reads
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self._ssl_context, limit=2**16
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and break all connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for session in self.sessions:
            session.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> tuple[str, int]:
        """The address it listens on."""
        return "127.0.0.1", self.port

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until an event at this broker makes ``condition`` true."""
        async with asyncio.timeout(WAIT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def asked(self, api_key: int) -> list[Received]:
        """Return the requests of one API so far."""
        return [request for request in self.requests if request.api_key == api_key]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        session = Session(self, writer)
        self.sessions.append(session)
        self._changed.set()
        if self._greet is not None:
            self._greet(session)
        try:
            while self._reads:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = Received(await reader.readexactly(size))
                session.requests.append(request)
                self.requests.append(request)
                self.script(session, request)
                self._changed.set()
            await asyncio.Event().wait()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            pass  # stop() cancels; a stream's own callback would report a cancelled handler
        finally:
            self._changed.set()
            writer.transport.abort()
