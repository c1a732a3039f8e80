"""One connection to one broker, from the open transport to its end, as a machine without I/O.

The story: a transport is dialed (DIALING) and opens; the first request on it is always
ApiVersions, since nothing is known about the peer, which may have been upgraded since the last
connection (NEGOTIATING). A broker that doesn't know our version of it answers UNSUPPORTED_VERSION
in version 0, with what it does know about that one API, or with nothing at all (KIP-511), and we
ask again, lower. Then a task of the selector authenticates us by SASL (AUTHENTICATING), which is
passed at once where none is configured. From READY on, requests are written in order and answered
in that order; now and then the broker wants us to authenticate again (REAUTHENTICATING, KIP-368):
what is under way is answered, and new requests wait. A connection that is to go away finishes what
is under way (DRAINING). Everything ends in CLOSED, with ``error`` as reason.

``Channel`` drives it: it hands bytes and ``now`` in, and takes bytes to write and answers out.
This file must not import asyncio, sockets or clocks.
"""

from __future__ import annotations

import copy
import enum
import struct
from typing import TYPE_CHECKING, Any

from kclient.errors import (
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
)
from kclient.network.frames import TLS_LISTENER, FramePool, FrameReader, RawResponse
from kclient.network.handshake import ClientInformation, Handshake, Step
from kclient.network.requests import InFlightRequests, PendingRequest
from kclient.protocol.api_versions import (
    MAX_THROTTLE_TIME,
    should_client_throttle,
)
from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.message import Request
from kclient.transitions import step

if TYPE_CHECKING:
    from kclient.network.nodes import ConnectionKey
    from kclient.network.requests import RequestFuture
    from kclient.protocol.api_versions import NodeApiVersions


class ConnectionState(enum.Enum):
    """Where a connection stands."""

    DIALING = "The transport isn't open yet."
    NEGOTIATING = "ApiVersions was asked; what the broker speaks isn't known yet."
    AUTHENTICATING = "Versions are known; the peers authenticate each other."
    READY = "Requests may be written."
    REAUTHENTICATING = "The session is renewed; requests wait."
    DRAINING = "No new requests; those under way are still awaited, then it closes."
    CLOSED = "The end. Nothing comes in or goes out any more."


class ConnectionEvent(enum.Enum):
    """What moves a connection."""

    OPENED = "The transport is open, TLS included."
    FELL_BACK = "The broker asked for a lower version of ApiVersions."
    NEGOTIATED = "The broker's versions are known."
    AUTHENTICATED = "Authentication succeeded, or none is configured."
    RENEWED = "The session is about to end, so the peers authenticate each other again."
    RETIRED = "We want it to go away once it is idle."
    ENDED = "The peer, a fault, a timeout or we ended it."


_S, _E = ConnectionState, ConnectionEvent
TRANSITIONS: dict[ConnectionState, dict[ConnectionEvent, ConnectionState]] = {
    _S.DIALING: {_E.OPENED: _S.NEGOTIATING, _E.ENDED: _S.CLOSED},
    _S.NEGOTIATING: {
        _E.FELL_BACK: _S.NEGOTIATING,
        _E.NEGOTIATED: _S.AUTHENTICATING,
        _E.ENDED: _S.CLOSED,
    },
    _S.AUTHENTICATING: {_E.AUTHENTICATED: _S.READY, _E.ENDED: _S.CLOSED},
    _S.READY: {
        _E.RENEWED: _S.REAUTHENTICATING,
        _E.RETIRED: _S.DRAINING,
        _E.ENDED: _S.CLOSED,
    },
    _S.REAUTHENTICATING: {
        _E.AUTHENTICATED: _S.READY,
        _E.RETIRED: _S.DRAINING,
        _E.ENDED: _S.CLOSED,
    },
    _S.DRAINING: {_E.ENDED: _S.CLOSED},
    _S.CLOSED: {},
}
"""An event that a state doesn't list is a defect of the driver: ``transitions.step`` raises."""

HANDSHAKE = frozenset({_S.DIALING, _S.NEGOTIATING, _S.AUTHENTICATING})
"""The states before a connection is usable."""
WANTS_SASL = "a listener that wants SASL behaves like that: see security="
"""The hint of an error after which the listener is asked whether it does."""
_AUTHENTICATION = frozenset({_S.AUTHENTICATING, _S.REAUTHENTICATING})

# Names of the module: a look into an enum's class costs ten times as much.
_READY = ConnectionState.READY
_CLOSED = ConnectionState.CLOSED
_DRAINING = ConnectionState.DRAINING
_NEGOTIATING = ConnectionState.NEGOTIATING
_REAUTHENTICATING = ConnectionState.REAUTHENTICATING
_CORRELATION_MASK = 0x7FFFFFFF
_INT32 = struct.Struct(">i")


class Connection:
    """The machine of one connection. See the file's docstring.

    Args:
        key: Node and lane, for texts.
        address: ``host:port``, for texts.
        identity: Name and version of this client.
        pool: Buffers for received frames.
        frame_limit: Largest response in bytes, over what its request asked for.
        in_flight_limit: Requests under way at once.
        authenticates: It is usable only once ``authenticated`` was called.

    Attributes:
        state: Changed by ``apply`` only.
        versions: What the broker speaks; None before it is known.
        error: Why it is CLOSED; None before.
        writable: The transport takes bytes, as far as its driver says.
        throttled_until: No request may be written before that time (KIP-219).
        last_used: When a request was last written or answered.
        answered: Requests answered since READY.
        lost_requests: Requests that were under way when it closed.
        setup_timed_out: It closed since the handshake took too long.
        output: What ``take_output`` gives, in pieces; to see whether there is any.
        outcomes: What ``take_outcomes`` gives, likewise.
        buffer: To be called for where the transport shall put the next bytes.
    """

    def __init__(
        self,
        key: ConnectionKey,
        address: str,
        identity: ClientInformation,
        *,
        pool: FramePool,
        frame_limit: int,
        in_flight_limit: int,
        authenticates: bool = False,
    ) -> None:
        self.key = key
        self.address = address
        self.state = ConnectionState.DIALING
        self.versions: NodeApiVersions | None = None
        self.error: KafkaError | None = None
        self.in_flight = InFlightRequests(in_flight_limit)
        self.writable = True
        self.throttled_until = 0.0
        self.last_used = 0.0
        self.answered = 0
        self.lost_requests = 0
        self.setup_timed_out = False
        self._client_id = identity.client_id
        self._authenticates = authenticates
        self._handshake = Handshake(identity, self.where, key.node_id)
        self.frames = FrameReader(pool, frame_limit)
        self.buffer = self.frames.buffer
        self._frame_limit = frame_limit
        self._correlation_id = 0
        self._setup_deadline = 0.0
        self.output: list[bytes] = []
        self.outcomes: list[tuple[PendingRequest, object]] = []

    # What the driver asks

    @property
    def is_closed(self) -> bool:
        """It has ended; ``error`` says why."""
        return self.state is _CLOSED

    @property
    def where(self) -> str:
        """The peer, for texts."""
        if self.key.node_id < 0:
            return f"bootstrap broker {self.address}"
        return f"broker {self.key.node_id} at {self.address}"

    def can_send(self, now: float) -> bool:
        """A request may be written now."""
        return (
            self.state is _READY
            and self.writable
            and self.in_flight.can_send_more
            and now >= self.throttled_until
        )

    def next_deadline(self) -> float | None:
        """When ``expire`` has something to do: the first deadline of what is in flight."""
        return self.in_flight.earliest_deadline()

    def take_output(self) -> bytes:
        """The bytes to write now, joined; empty if there are none."""
        output = self.output
        if not output:
            return b""
        self.output = []
        return output[0] if len(output) == 1 else b"".join(output)

    def take_outcomes(self) -> list[tuple[PendingRequest, object]]:
        """Requests that have their outcome, an exception or a value, oldest first."""
        outcomes = self.outcomes
        if outcomes:
            self.outcomes = []
        return outcomes

    # What the driver reports

    def opened(self, now: float, setup_deadline: float) -> None:
        """The transport is open. ``setup_deadline`` is when the handshake must be over."""
        self.apply(ConnectionEvent.OPENED)
        self.last_used = now
        self._setup_deadline = setup_deadline
        self._ask(self._handshake.begin(), now, setup_deadline)

    def ask(self, message: Request, now: float, deadline: float) -> RequestFuture[Any]:
        """Write a request of an authentication; the future gets its response.

        Raises:
            NoCommonVersion: The broker knows no SASL.
            ConnectionLost: The connection isn't one that is being authenticated.
        """
        if self.state not in _AUTHENTICATION or self.versions is None:
            raise ConnectionLost(
                f"the connection to {self.where} ended in an authentication",
                node_id=self.key.node_id,
            )
        version = self.versions.usable[type(message), None]
        return self._ask((message, version), now, deadline).future

    def authenticated(self) -> None:
        """The peers have authenticated each other; nothing happens where it has ended since."""
        if self.state in _AUTHENTICATION:
            self.apply(ConnectionEvent.AUTHENTICATED)

    def submit(self, request: PendingRequest, now: float) -> bool:
        """Write a request; False, and nothing happens, where ``can_send`` says no.

        Raises:
            NoCommonVersion: Broker and client share no version of this API.
            ProtocolError: The message can't be written in the version found.
            Exception: What the request's own builder raised. In all cases nothing was written.
        """
        if not self.can_send(now) or self.versions is None:
            return False
        request.version = self.versions.usable[request.api, request.max_version]
        build = request.build
        message = build if isinstance(build, Request) else build(request.version)
        self._write(request, message, now)
        # However long it waited: only a peer that had the whole time to answer is given up.
        if (deadline := now + request.timeout) > request.deadline:
            request.deadline = deadline
        if request.expect_response:
            self.in_flight.add(request)
        else:
            self.outcomes.append((request, None))
        return True

    def received(self, count: int, now: float) -> bool:
        """``count`` bytes arrived in ``buffer``: read all complete frames.

        False where that can't have brought anything: most reads of a large frame end inside of it.
        """
        if not self.frames.received(count):
            return False
        try:
            while self.state is not _CLOSED:
                oldest = self.in_flight.oldest
                self.frames.limit = self._frame_limit + (oldest.response_bytes if oldest else 0)
                frame = self.frames.next_frame()
                if frame is None:
                    break
                if self.state is _NEGOTIATING:
                    self._take_handshake(frame, now)
                else:
                    self._take_response(frame, now)
        except ProtocolError as error:
            self._end(self._unreadable(error))
        finally:
            if self.state is _CLOSED:
                self.frames.close()
        return True

    def expire(self, now: float) -> None:
        """Close if a deadline is over: answers come in order, so what lies behind is lost too.

        A caller whose own time ends before that gets its error, and the connection stays.
        """
        if self.is_closed:
            return
        if not self.in_flight.has_expired(now):
            for request in self.in_flight.take_abandoned(now):
                self.outcomes.append((request, self._too_late(request, now)))
            return
        if self.state in HANDSHAKE:
            self.setup_timed_out = True
            doing = "ApiVersions" if self.versions is None else "authentication"
            error = BrokerUnreachable(
                f"{self.where} accepted the connection but gave no answer to {doing} in time",
                node_id=self.key.node_id,
            )
            self._end(error)
        else:
            # For those that stand behind such a request, or before it with more time.
            behind = ConnectionLost(
                f"the connection to {self.where} was closed, since another request on it timed out",
                node_id=self.key.node_id,
            )
            self._end(behind, expired_at=now)
        self.frames.close()

    def retire(self) -> None:
        """Take no more requests and close once those under way are answered."""
        if self.state is _READY or self.state is _REAUTHENTICATING:
            self.apply(ConnectionEvent.RETIRED)
        if self.state is _DRAINING and not len(self.in_flight):
            self.end(
                ConnectionLost(
                    f"the connection to {self.where} was retired", node_id=self.key.node_id
                )
            )

    def lost(self, cause: Exception | None) -> None:
        """The transport is gone; ``cause`` is None where the peer closed in good order."""
        if not self.is_closed:
            self.end(self._lost(cause))

    def end(self, error: KafkaError) -> None:
        """Close for the given reason; whatever is under way fails with it."""
        if not self.is_closed:
            self._end(error)
            self.frames.close()

    def apply(self, event: ConnectionEvent) -> None:
        """Make the transition for ``event``. Raises IllegalTransition where the table has none."""
        self.state = step(TRANSITIONS, self.state, event)

    # Requests and responses

    def _write(self, request: PendingRequest, message: Request, now: float) -> None:
        correlation_id = self._correlation_id
        data = encode_request(message, request.version, correlation_id, self._client_id)
        self._correlation_id = (correlation_id + 1) & _CORRELATION_MASK
        request.correlation_id = correlation_id
        request.sent_at = now
        if not request.of_handshake:
            self.last_used = now
        request.request_bytes = len(data)
        self.output.append(data)

    def _take_response(self, frame: memoryview, now: float) -> None:
        request = self.in_flight.complete_next(_INT32.unpack_from(frame)[0])
        request.received_bytes = frame.nbytes
        if not request.of_handshake:
            self.last_used = now
            self.answered += 1
        outcome: Any
        try:
            api, version = request.api, request.version
            _, offset = decode_response_header(frame, api.API_KEY, version)
            if request.raw:
                outcome = RawResponse(api.API_KEY, version, self.frames.keep(), offset)
            else:
                outcome = api.RESPONSE.decode(frame, version, offset)
            # Nearly all responses have the field, and the others cost one look-up.
            throttle_ms = getattr(outcome, "throttle_time_ms", 0)
            if throttle_ms > 0 and should_client_throttle(api.API_KEY, version):
                self._throttle(request, throttle_ms, now)
        except ProtocolError as error:
            if request.of_handshake:
                raise
            # The frame was whole, so the next one can be read: only this request failed.
            error.node_id = self.key.node_id
            outcome = error
        finally:
            frame.release()
        self.outcomes.append((request, outcome))
        if self.state is _DRAINING:
            self.retire()

    def _throttle(self, request: PendingRequest, milliseconds: int, now: float) -> None:
        if milliseconds > 0:
            request.throttle = min(milliseconds / 1000, MAX_THROTTLE_TIME)
            self.throttled_until = max(self.throttled_until, now + request.throttle)

    # The handshake

    def _ask(self, question: Step, now: float, deadline: float) -> PendingRequest:
        """Write a request of the handshake or of a later authentication."""
        message, version = question
        timeout = deadline - now
        request = PendingRequest(
            type(message), message, timeout=timeout, deadline=deadline, of_handshake=True
        )
        request.version = version
        self._write(request, message, now)
        self.in_flight.add(request)
        return request

    def _take_handshake(self, frame: memoryview, now: float) -> None:
        request = self.in_flight.complete_next(_INT32.unpack_from(frame)[0])
        try:
            question = self._handshake.advance(frame)
        except ProtocolError:
            raise
        except KafkaError as error:
            error.node_id = self.key.node_id
            self._end(error)
            return
        finally:
            frame.release()
        self._throttle(request, self._handshake.throttle_ms, now)
        if question is not None:
            self.apply(ConnectionEvent.FELL_BACK)
            self._ask(question, now, self._setup_deadline)
            return
        self.versions = self._handshake.versions
        self.apply(ConnectionEvent.NEGOTIATED)
        if not self._authenticates:
            self.apply(ConnectionEvent.AUTHENTICATED)

    # The end

    def _end(self, error: KafkaError, *, expired_at: float | None = None) -> None:
        in_handshake = self.state in HANDSHAKE
        self.apply(ConnectionEvent.ENDED)
        self.error = error
        requests = self.in_flight.clear()
        if in_handshake:
            return  # those were our own; the driver fails the ones that wait
        self.lost_requests = len(requests)
        for request in requests:
            if expired_at is not None and request.deadline <= expired_at:
                outcome: KafkaError = self._timed_out(request)
            else:
                outcome = _under_way(request, error)
            self.outcomes.append((request, outcome))

    # Its errors. ``maybe_written`` is True in all that concern a request under way: it was handed
    # to the transport, and how far it came can't be known.

    def _timed_out(self, request: PendingRequest) -> RequestTimedOut:
        """For the request whose deadline is over."""
        return RequestTimedOut(
            f"{request} to {self.where} got no answer within {request.timeout:g} s, so the "
            "connection was closed",
            node_id=self.key.node_id,
            maybe_written=True,
        )

    def _too_late(self, request: PendingRequest, now: float) -> RequestTimedOut:
        """For the request whose caller waits no longer, though the broker still may."""
        waited = request.sent_at - request.created_at
        return RequestTimedOut(
            f"{request} to {self.where} got no answer in time: it waited {waited:.3g} s for a "
            f"connection, and {now - request.sent_at:.3g} s for the answer",
            node_id=self.key.node_id,
            maybe_written=True,
        )

    def _lost(self, cause: Exception | None) -> BrokerUnreachable | ConnectionLost:
        """The transport went away, ``cause`` says why."""
        partial = self.frames.received_of_frame
        how = f"broke: {cause or type(cause).__name__}" if cause else "was closed by the broker"
        if partial:
            how += f" in the middle of a response, after {partial} bytes of it"
        text = f"the connection to {self.where} {how}"
        error: BrokerUnreachable | ConnectionLost
        if self.state in HANDSHAKE:
            error = BrokerUnreachable(f"{text} before it was usable")
            error.hint = "see the broker's log for the reason"
            if self.versions is None and not partial:
                error.hint = "that listener may want TLS or SASL: see security="
        else:
            error = ConnectionLost(text)
            if not self.answered and not self._authenticates:
                # A SASL listener answers ApiVersions, and hangs up on the first other request.
                error.hint = WANTS_SASL
        error.node_id = self.key.node_id
        error.__cause__ = cause
        return error

    def _unreadable(self, cause: ProtocolError) -> BrokerUnreachable | ConnectionLost:
        """The peer sent what can't be read, so nothing after it can be trusted."""
        kind = BrokerUnreachable if self.state in HANDSHAKE else ConnectionLost
        text = f"{self.where} sent what can't be read: {cause.message}"
        error = kind(text, node_id=self.key.node_id, hint=cause.hint)
        error.__cause__ = cause
        if cause.hint == TLS_LISTENER:
            error.retriable = False  # it would be the same again
        return error


def _under_way(request: PendingRequest, error: KafkaError) -> KafkaError:
    """``error``, the end of a connection, as the outcome of one request on it.

    Each gets an instance of its own, since tracebacks and notes are kept in it.
    """
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    own.message = f"{request} got no answer: {error.message}"
    own.maybe_written = True
    return own
