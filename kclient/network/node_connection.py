"""The connection to one node on one lane: waiting requests, the connection itself, one timer.

``NetworkClient`` makes one when a ConnectionKey is first used and keeps it. Requests queue here
while there is no usable connection and are written, in order, when it has capacity. It owns the one
timer of the connection, which stands at the earliest of its deadlines. Rules of a connection are
in ``connection.py``, those of back-off in ``nodes.py``.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import math
from collections import deque
from typing import TYPE_CHECKING

from kclient.errors import (
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    NoCommonVersion,
    RequestTimedOut,
)
from kclient.network.channel import Channel
from kclient.network.connection import HANDSHAKE, WANTS_SASL, ConnectionState
from kclient.network.frames import RawResponse
from kclient.network.nodes import ConnectionKey

if TYPE_CHECKING:
    from kclient.network.client import NetworkClient
    from kclient.network.requests import PendingRequest

# Names of the module: a look into an enum's class costs ten times as much.
_READY = ConnectionState.READY
_DRAINING = ConnectionState.DRAINING
_RENEWING = ConnectionState.REAUTHENTICATING
FLUSH_BYTES = 256 * 1024
"""So much is joined into one write at most, but for a single request that is larger."""
SMALL_REQUEST = 16 * 1024
"""Below that many bytes a request may wait for the loop's next round, to share a write."""
VERSIONS_MAX_AGE = 30.0
"""Seconds after which a connection that lacks a version of what is asked is made anew."""
TIMER_SLACK = 0.001
"""Seconds: uvloop counts in whole milliseconds and would run a timer before it is due."""
DRAIN_TIME = 1.0
"""Seconds that a broker has, at an address that it left, for what is under way there."""
_NEVER = math.inf


class Capacity(enum.IntEnum):
    """Whether a node takes a request. When NONE, which is false, ends, listeners are notified."""

    NONE = 0
    ONCE_CONNECTED = 1
    NOW = 2


_NOW = Capacity.NOW


class NodeConnection:
    """One ConnectionKey of a client. Has no task; timers: one.

    Args:
        key: Which.
        owner: The client.

    Attributes:
        waiting: Requests that are not written yet, oldest first.
        last_response_at: When the node last answered a request on it; None if it never did.
        channel: The present connection, in whatever state; None if there is none.
    """

    def __init__(self, key: ConnectionKey, owner: NetworkClient) -> None:
        self.key = key
        self.waiting: deque[PendingRequest] = deque()
        self.channel: Channel | None = None
        self.last_response_at: float | None = None
        self._owner = owner
        self._limit = owner.selector.in_flight_limit(key.lane)
        self._dialed = ""  # the address that the present connection goes to
        self._drained_by = _NEVER  # when the present connection closes, whatever is under way
        self._established = False
        self._proved = False  # the present connection was of use
        self._opened_at = 0.0
        self._notify_when_ready = False  # a caller was refused: notify when there is capacity
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._closed = False

    # What the client asks

    @property
    def in_flight(self) -> int:
        """Requests under way or waiting to be."""
        channel = self.channel
        under_way = len(channel.connection.in_flight) if channel and self._established else 0
        return under_way + len(self.waiting)

    @property
    def is_ready(self) -> bool:
        """There is a usable connection."""
        return self.channel is not None and self.channel.connection.state in (_READY, _RENEWING)

    def can_send(self, now: float) -> Capacity:
        """Whether a request would be written, now or by a connection that may be made."""
        channel = self.channel
        if channel is not None and not self.waiting and channel.connection.can_send(now):
            return _NOW
        if self._can_send(now):
            return Capacity.ONCE_CONNECTED
        self._notify_when_ready = True
        if channel is None:
            self._await_back_off(now)
        return Capacity.NONE

    def _can_send(self, now: float) -> bool:
        channel = self.channel
        if channel is None:
            return len(self.waiting) < self._limit and self._may_open(now)
        if channel.connection.state is _READY:
            return channel.connection.can_send(now) and not self.waiting
        soon = channel.connection.state in HANDSHAKE or channel.connection.state is _RENEWING
        return soon and len(self.waiting) < self._limit

    def _may_open(self, now: float) -> bool:
        node = self._owner.book.get(self.key.node_id)
        return node is not None and self._owner.states.can_dial(node.address, now)

    @property
    def address(self) -> str:
        """Where the node is now; empty if that isn't known."""
        node = self._owner.book.get(self.key.node_id)
        return node.address if node is not None else ""

    # What the client calls

    def send(self, request: PendingRequest, now: float) -> None:
        """Write the request, or let it wait for the connection."""
        channel = self.channel
        if channel is not None and not self.waiting and self._submit(channel, request, now):
            # While others are under way anyhow, small ones share a write: a system call costs more
            # than all the rest of a request.
            small = request.request_bytes < SMALL_REQUEST and request.expect_response
            if small and channel.connection.in_flight.oldest is not request:
                channel.flush_soon()
            else:
                channel.flush()
        else:
            self.waiting.append(request)
            if channel is None or self._owner.book.get(self.key.node_id) is None:
                self.open(now)
            else:
                self._bound_drain()
        if request.next_deadline < self._timer_at and not request.future.done:
            self._arm(request.next_deadline)

    def open(self, now: float) -> None:
        """Dial if that is allowed now, else see that it happens when it is."""
        owner, node_id = self._owner, self.key.node_id
        node = owner.book.get(node_id)
        if node is None:
            self.fail_waiting(unknown_node(node_id))
        elif self.channel is not None:
            return
        elif owner.states.can_dial(node.address, now):
            self._dialed = node.address
            owner.states.dialing(self._dialed)
            self._established = self._proved = False
            self._opened_at = now
            state = owner.states.of(self._dialed)
            last = state.last_error
            self.channel = owner.selector.open(
                self.key,
                node,
                owner.states.setup_timeout(self._dialed),
                self,
                failures=state.unusable,
                may_want_sasl=isinstance(last, ConnectionLost) and last.hint == WANTS_SASL,
            )
            self._arm(self.channel.setup_deadline)
        elif (retry_at := owner.states.of(node.address).retry_at) > now:
            self._arm(retry_at)
        # Else another lane probes the node: its outcome brings us here again.

    def retry_dial(self, now: float) -> None:
        """The node may be dialed again: do so for waiting requests, or notify refused callers."""
        if self.channel is not None:
            return
        if self.waiting:
            self.open(now)
        elif self._notify_when_ready:
            if self._can_send(now):
                self._notify_when_ready = False
                self._owner.capacity_changed(self)
            else:
                self._await_back_off(now)

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail what isn't written yet with an error like ``error``."""
        waiting = list(self.waiting)
        self.waiting.clear()
        for request in waiting:
            own = copy.copy(error)  # each its own, since tracebacks and notes are kept in it
            own.node_id = self.key.node_id
            own.maybe_written = False
            own.__cause__ = error.__cause__
            self._answer(request, own)

    def retire(self, why: str) -> None:
        """The connection isn't wanted any more: finish what is under way, then close."""
        channel = self.channel
        if channel is None:
            return
        if channel.connection.state in HANDSHAKE:
            channel.close(why)
        else:
            channel.retire()
            self._bound_drain()

    def _bound_drain(self) -> None:
        """Bound the wait for responses from an address where the node isn't any more.

        Requests for the new one wait for that end, as they must not overtake those under way.
        """
        channel = self.channel
        if channel is not None and channel.connection.state is _DRAINING:
            if self._dialed != self.address != "" and self._drained_by == _NEVER:
                self._drained_by = self._owner.clock.now() + DRAIN_TIME
                self._arm(self._drained_by)

    def disconnect(self, why: str) -> None:
        """The usable connection, if there is one, closes now, whatever is under way on it."""
        channel = self.channel
        if channel is not None and self._established:
            channel.close(why)

    def close(self, error: KafkaError) -> None:
        """Fail what waits and stop the timer, for good; the selector ends the channel."""
        self._closed = True
        self.fail_waiting(error)
        self._disarm()

    # What the channel reports

    def channel_ready(self, channel: Channel) -> None:
        """A usable connection: write what waited."""
        owner, now = self._owner, self._owner.clock.now()
        self._established = True
        self.last_response_at = now
        owner.states.usable(self._dialed, now)
        owner.reporter.opened(channel, now - self._opened_at, now)
        self._opened_at = now
        owner.dial_finished(self)
        if channel.connection.throttled_until > now:  # the handshake's own answer may ask for it
            self._notify_when_ready = True
            self._arm(channel.connection.throttled_until)
        self._arm(channel.renew_at)
        self._pump(channel, now)
        owner.capacity_changed(self)

    def channel_completed(self, channel: Channel, request: PendingRequest, outcome: object) -> None:
        """A request has its outcome."""
        if request.received_bytes and not request.of_handshake:
            self.last_response_at = channel.connection.last_used
            if not self._proved:
                self._proved = True
                self._owner.states.proved(self._dialed)
        self._answer(request, outcome)
        if request.throttle:
            self._notify_when_ready = True
            self._arm(channel.connection.throttled_until)

    def channel_asked(self, deadline: float) -> None:
        """A step of an authentication was written."""
        self._arm(deadline)

    def channel_renewed(self, channel: Channel) -> None:
        """Its session goes on: write what waited meanwhile."""
        self._arm(channel.renew_at)
        self.channel_has_space(channel)
        self._owner.capacity_changed(self)  # who asked meanwhile was told to wait for that

    def channel_setup_limited(self, channel: Channel) -> None:
        """Its name has other addresses, which need time, too."""
        self._arm(channel.setup_deadline)

    def channel_has_space(self, channel: Channel) -> None:
        """Write what waited, and say so where nothing does."""
        if not self.waiting and not self._notify_when_ready:
            return
        now = self._owner.clock.now()
        if self.waiting:
            self._pump(channel, now)
        if self._notify_when_ready and self._can_send(now):
            self._notify_when_ready = False
            self._owner.capacity_changed(self)

    def channel_is_full(self, channel: Channel) -> None:
        """The peer doesn't read: see that it isn't waited for without end."""
        self._arm(self._owner.clock.now() + self._owner.selector.request_timeout)

    def channel_closed(self, channel: Channel) -> None:
        """The connection is gone, or couldn't be made."""
        owner, now, states = self._owner, self._owner.clock.now(), self._owner.states
        established, error = self._established, channel.connection.error
        self.channel = None
        self._established = False
        self._drained_by = _NEVER
        owner.selector.forget(channel)
        owner.reporter.closed(channel, now, established=established)
        if error is None:
            raise RuntimeError(f"the connection {self.key} closed without a reason")
        if channel.intentional:
            if not established:
                states.abandoned(self._dialed)
                owner.dial_finished(self)
        elif established:
            states.lost(self._dialed, now, error, lasted=now - self._opened_at)
        else:
            timed_out = channel.connection.setup_timed_out
            states.failed(self._dialed, now, error, setup_timed_out=timed_out)
            owner.node_unreachable(self, error)
        if self.waiting:
            self.open(now)
        else:
            self._await_back_off(now)
        owner.capacity_changed(self)

    # Requests

    def _pump(self, channel: Channel, now: float) -> None:
        """Write what waits, as far as there is capacity, in one piece or a few large ones."""
        unwritten = 0
        while self.waiting:
            request = self.waiting.popleft()
            if not self._submit(channel, request, now):
                self.waiting.appendleft(request)
                break
            unwritten += request.request_bytes
            if unwritten >= FLUSH_BYTES:
                channel.flush()  # and see whether the transport takes more
                unwritten = 0
        if unwritten:
            channel.flush()

    def _submit(self, channel: Channel, request: PendingRequest, now: float) -> bool:
        """Write it, or fail it where that isn't possible at all; False where it isn't now."""
        try:
            return channel.connection.submit(request, now)
        except Exception as error:  # no common version, or the builder failed: this request only
            if isinstance(error, KafkaError) and error.maybe_written is None:
                error.maybe_written = False
            self._answer(request, error)
            if isinstance(error, NoCommonVersion) and now - self._opened_at >= VERSIONS_MAX_AGE:
                # Maybe what the broker said of itself was damaged, and it was upgraded maybe.
                self.retire("the broker's versions are asked for again")
            return True

    def _answer(self, request: PendingRequest, outcome: object) -> None:
        if request.future.done:  # its caller had no more time
            if isinstance(outcome, RawResponse):
                outcome.release()
            return
        error = outcome if isinstance(outcome, Exception) else None
        reporter = self._owner.reporter
        reporter.completed(self.key, request, error, self._owner.clock)
        try:
            if error is not None:
                request.future.fail(error)
            else:
                request.future.complete(outcome)
        except Exception as fault:
            reporter.listener_failed(fault, f"{request} to node {self.key.node_id}")

    # The timer

    def _await_back_off(self, now: float) -> None:
        """Have refused callers notified at the end of the node's back-off, if any."""
        if (retry_at := self._owner.states.of(self.address).retry_at) > now:
            self._arm(retry_at)

    def _arm(self, at: float) -> None:
        """Have the timer run at ``at`` or before."""
        if at >= self._timer_at or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_at(at + TIMER_SLACK, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_at = _NEVER

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = _NEVER
        now = self._owner.clock.now()
        self._expire_waiting(now)
        channel = self.channel
        if channel is not None:
            self._expire_channel(channel, now)
        else:
            self.retry_dial(now)
        if (at := self._next_time(now)) is not None:
            self._arm(at)

    def _expire_channel(self, channel: Channel, now: float) -> None:
        connection = channel.connection
        if connection.state is ConnectionState.DIALING:
            return  # the dial has its own time-out
        channel.expire(now)
        if now >= self._drained_by:
            self.disconnect("the broker has another address now")
        patience = self._owner.selector.request_timeout
        if channel.full_since is not None and now >= channel.full_since + patience:
            # Requests without a response have no deadline by which a lost peer would be noticed.
            error = ConnectionLost(
                f"the connection to {connection.where} was closed, since it took no bytes for "
                f"{patience:g} s",
                node_id=self.key.node_id,
            )
            channel.end(error)
        if connection.state is _READY:
            self.channel_has_space(channel)  # a time of silence may be over
            if now >= channel.renew_at:
                self._owner.selector.renew(channel)

    def _expire_waiting(self, now: float) -> None:
        expired = [request for request in self.waiting if request.next_deadline <= now]
        if not expired:
            return
        self.waiting = deque(request for request in self.waiting if request.next_deadline > now)
        last = self._owner.states.of(self.address).last_error
        failure = f"; the last failure was: {last}" if last is not None else ""
        for request in expired:
            waited = request.next_deadline - request.created_at
            error = RequestTimedOut(
                f"{request} waited {waited:.3g} s for a connection to node {self.key.node_id} "
                f"that takes it{failure}",
                node_id=self.key.node_id,
                maybe_written=False,
            )
            error.__cause__ = last
            self._answer(request, error)

    def _next_time(self, now: float) -> float | None:
        """When the timer has something to do next."""
        times = [request.next_deadline for request in self.waiting]
        channel = self.channel
        if channel is not None:
            if not self._established and channel.setup_deadline > now:
                times.append(channel.setup_deadline)
            deadline = channel.connection.next_deadline()
            if deadline is not None:
                times.append(deadline)
            if channel.connection.throttled_until > now:
                times.append(channel.connection.throttled_until)
            times.append(self._drained_by)
            if channel.connection.state is _READY:
                times.append(channel.renew_at)
            if channel.full_since is not None:
                times.append(channel.full_since + self._owner.selector.request_timeout)
        else:
            retry_at = self._owner.states.of(self.address).retry_at
            if retry_at > now:
                times.append(retry_at)
        at = min(times, default=_NEVER)
        return at if at < _NEVER else None


def unknown_node(node_id: int) -> BrokerUnreachable:
    """The error of a request to a node that the address book doesn't have."""
    return BrokerUnreachable(
        f"broker {node_id} is not a part of the cluster", node_id=node_id, maybe_written=False
    )
