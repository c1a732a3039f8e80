"""One client's connection through the proxy, and the one that it has to the broker.

``proxy.py`` makes one for each connection that a listener accepts. Both byte streams are split into
frames here, which the rules see before they enter the two pipes. One task: the connecting to the
broker, which ends with the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter, deque
from typing import TYPE_CHECKING, cast

from kclient.testing.api_versions import ApiName, api_key_of
from tests.faults.answers import with_own_addresses
from tests.faults.passage import Asked, Passage, Side
from tests.faults.pipe import Pipe
from tests.faults.units import Cutter, Frames, Opaque

if TYPE_CHECKING:
    from tests.faults.proxy import FaultProxy, ProxyListener

_CORRELATION = struct.Struct(">i")
_LINGER_NONE = struct.pack("ii", 1, 0)


class Session(asyncio.Protocol):
    """One connection of a client.

    Attributes:
        client_id: That of the client's first request.
        requests: How many were passed on to the broker, by API.
    """

    def __init__(self, proxy: FaultProxy, listener: ProxyListener) -> None:
        self.client_id: str | None = None
        self.requests: Counter[int] = Counter()
        self._proxy = proxy
        self._listener = listener
        self._in_flight: Counter[int] = Counter()
        self._waiting: deque[Asked] = deque()
        self._up = Pipe(proxy.loop, self._request_passed, self._cut_by_rule)
        self._down = Pipe(proxy.loop, self._answer_passed, self._cut_by_rule)
        self._cut_requests: Cutter = Opaque() if proxy.opaque else Frames()
        self._cut_answers: Cutter = Opaque() if proxy.opaque else Frames()
        self._connecting: asyncio.Task[None] | None = None
        self._client_open = self._back_open = False
        self._over = False

    def __repr__(self) -> str:
        return f"<Session of {self.client_id} to node {self.node}>"

    @property
    def node(self) -> int | None:
        """Node id of the broker behind it; None while it is unknown."""
        return self._listener.node

    @property
    def topic_names(self) -> dict[bytes, str]:
        """By topic id, from the Metadata responses to any client."""
        return self._proxy.topic_names

    def pipe(self, on: Side) -> Pipe:
        """One direction of it."""
        return self._up if on == "request" else self._down

    def in_flight(self, api: ApiName) -> int:
        """Requests of an API that were passed on and whose response has not passed back."""
        return self._in_flight[api_key_of(api)]

    def cut(self, *, reset: bool = False) -> None:
        """Close both sides now; with ``reset`` by RST, which also loses what is in flight."""
        if not self._over:
            self._proxy.cuts += 1
            self._end(reset)

    def _cut_by_rule(self, reset: bool) -> None:
        self.cut(reset=reset)

    # The client's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._down.out = self._up.source = cast(asyncio.Transport, transport)
        self._client_open = True
        self._proxy.opened(self)
        if self._proxy.closing:
            self.abort()
            return
        fate = self._proxy.fate_of(self)
        if fate == "silent":
            self._up.discard()
        elif fate is not None:
            self.cut(reset=fate == "reset")
        else:
            self._connecting = self._proxy.loop.create_task(self._connect())
            self._connecting.add_done_callback(lambda _: self._check_gone())

    def data_received(self, data: bytes) -> None:
        for unit in self._cut_requests.take(data):
            self._request(unit)

    def pause_writing(self) -> None:
        self._down.choke(True)

    def resume_writing(self) -> None:
        self._down.choke(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.ended(self)
        self._down.discard()
        self._client_open = False
        self._check_gone()
        if not self._over:
            # What the client sent before is on its way and arrives, as it would without a proxy.
            self._up.put_call(lambda: self._end(False))
            if self._up.muted:
                self._end(False)

    # The broker's side.

    async def _connect(self) -> None:
        host, port = self._listener.upstream
        try:
            await self._proxy.loop.create_connection(lambda: _Back(self), host, port)
        except OSError:
            self._end(False)
        except asyncio.CancelledError:
            # uvloop doesn't call connection_lost for a connection that was being opened.
            self._back_open = False
            raise

    def back_made(self, transport: asyncio.Transport) -> None:
        """The broker accepted."""
        self._back_open = True
        self._up.out = self._down.source = transport
        if self._over:
            transport.abort()
            return
        self._up.run()

    def back_received(self, data: bytes) -> None:
        """The broker sent bytes."""
        for unit in self._cut_answers.take(data):
            self._answer(unit)

    def back_choked(self, choked: bool) -> None:
        """The broker can't take more, or can again."""
        self._up.choke(choked)

    def back_lost(self) -> None:
        """The broker ended the connection."""
        self._up.discard()
        self._back_open = False
        self._check_gone()
        if not self._over:
            self._down.put_call(lambda: self._end(False))
            # A direction that was silenced stays so: then the client sees no close either.

    # Frames.

    def _request(self, unit: bytes) -> None:
        if self._up.ending:
            return
        asked = None if self._proxy.opaque else Asked(unit)
        if asked is not None and self.client_id is None:
            self.client_id = asked.client_id
        if not self._proxy.rules:
            self._up.put(asked, unit)
            return
        passage = Passage(self, "request", asked, unit)
        self._proxy.judge(passage)
        self._up.put_passage(passage)
        if asked is not None and asked.own is not None:
            self._up.put_call(lambda: self._wait_for_turn(asked))

    def _answer(self, unit: bytes) -> None:
        if self._proxy.opaque:
            self._back_down(None, unit)
            return
        (correlation_id,) = _CORRELATION.unpack_from(unit, 4)
        waiting = self._waiting
        if not waiting or waiting[0].correlation_id != correlation_id:
            self._back_down(None, unit)  # the response to a request that a rule made up
            return
        asked = waiting.popleft()
        self._back_down(asked, with_own_addresses(asked, unit, self._proxy.moved, self.topic_names))
        self._answer_own()

    def _answer_own(self) -> None:
        """Send the rules' own responses that are next in order: clients need them in order."""
        while self._waiting and self._waiting[0].own is not None:
            asked = self._waiting.popleft()
            assert asked.own is not None
            self._back_down(asked, asked.own)

    def _back_down(self, asked: Asked | None, unit: bytes) -> None:
        if self._down.ending:
            return
        if not self._proxy.rules:
            self._down.put(asked, unit)
            return
        passage = Passage(self, "answer", asked, unit)
        self._proxy.judge(passage)
        self._down.put_passage(passage)

    def _wait_for_turn(self, asked: Asked) -> None:
        """Queue a rule's own response until all requests before it have theirs."""
        if not asked.answered:
            return
        self._waiting.append(asked)
        self._answer_own()

    def _request_passed(self, asked: Asked | None) -> None:
        if asked is None:
            return
        self.requests[asked.api] += 1
        self._proxy.requests[asked.api] += 1
        if asked.answered:
            asked.open = True
            self._in_flight[asked.api] += 1
            self._waiting.append(asked)
        self._proxy.changed()

    def _answer_passed(self, asked: Asked | None) -> None:
        if asked is None:
            return
        self._proxy.answers[asked.api] += 1
        if asked.open:
            asked.open = False
            self._in_flight[asked.api] -= 1
        self._proxy.changed()

    # The end.

    def _end(self, reset: bool) -> None:
        """Close both sides; what was passed on before is still sent, unless ``reset``."""
        if self._over:
            return
        self._over = True
        self._up.discard()
        self._down.discard()
        self._proxy.ended(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in (self._down.out, self._up.out):
            if transport is None:
                continue
            if reset:
                _reset(transport)
            else:
                transport.close()
        self._check_gone()

    def abort(self) -> None:
        """Drop everything: the proxy closes."""
        self._end(False)
        for transport in (self._down.out, self._up.out):
            if transport is not None:
                transport.abort()

    def _check_gone(self) -> None:
        connecting = self._connecting is not None and not self._connecting.done()
        if self._over and not (self._client_open or self._back_open or connecting):
            self._proxy.gone(self)


class _Back(asyncio.Protocol):
    """The proxy's own connection to the broker."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._session.back_made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._session.back_received(data)

    def pause_writing(self) -> None:
        self._session.back_choked(True)

    def resume_writing(self) -> None:
        self._session.back_choked(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.back_lost()


def _reset(transport: asyncio.Transport) -> None:
    """Close with RST."""
    with contextlib.suppress(OSError):
        taken = transport.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    transport.abort()
