"""Tells the outside what happens in the network room: log, hooks, counters, and faults.

Called by the lines of one client. A *fault* is an exception out of somebody's listener: it must
not break a channel, and must not be swallowed either, so it is logged with its traceback and
handed to whoever supervises the client.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kclient.hooks import ConnectionClosed, ConnectionOpened, RequestCompleted, TaskDied, Throttled

if TYPE_CHECKING:
    from kclient.hooks import Counters, Hooks
    from kclient.network.addresses import ConnectionKey
    from kclient.network.channel import Channel
    from kclient.network.keeper import TaskKeeper
    from kclient.network.requests import PendingRequest

logger = logging.getLogger("kclient.network")

WARN_EVERY = 10.0
"""Seconds between two warnings about one address; the failures between are logged as DEBUG."""


class Reporter:
    """Log, hooks and counters of one client's network.

    Args:
        hooks: The client's observers.
        counters: The client's numbers; ours begin with ``network.``.
        keeper: Hears of each exception that escaped from a listener.
    """

    __slots__ = ("_counters", "_hooks", "_keeper", "_log", "_warned_at")

    def __init__(self, hooks: Hooks, counters: Counters, keeper: TaskKeeper) -> None:
        self._hooks = hooks
        self._log = hooks.log(logger)
        self._counters = counters
        self._keeper = keeper
        self._warned_at: dict[str, float] = {}

    def opened(self, channel: Channel, seconds: float) -> None:
        """A connection became usable, ``seconds`` after its dial began."""
        connection = channel.connection
        self._counters.add("network.connections_opened")
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("connected %s address=%s", connection.key, connection.address)
        if self._hooks.active:
            node_id, lane = connection.key
            self._hooks.emit(
                ConnectionOpened(node_id, lane.name.lower(), connection.address, seconds)
            )

    def closed(self, channel: Channel, now: float, *, established: bool) -> None:
        """A connection ended, or could not be made."""
        connection = channel.connection
        reason, in_flight = str(connection.error), connection.lost_requests
        if established:
            self._counters.add("network.connections_closed")
        else:
            self._counters.add("network.connections_failed")
        self._counters.add("network.bytes_received", channel.bytes_in)
        self._counters.add("network.bytes_sent", channel.bytes_out)
        level = logging.DEBUG if channel.blameless else self._level(connection.address, now)
        self._log.log(level, "closed %s in_flight=%d reason=%s", connection.key, in_flight, reason)
        if self._hooks.active:
            node_id, lane = connection.key
            self._hooks.emit(
                ConnectionClosed(node_id, lane.name.lower(), established, reason, in_flight)
            )

    def completed(
        self, key: ConnectionKey, request: PendingRequest, error: Exception | None, now: float
    ) -> None:
        """A request got its answer, or failed."""
        self._counters.add("network.requests" if error is None else "network.requests_failed")
        if self._hooks.active:
            self._emit_completed(key, request, error, now)

    def fault(self, error: Exception, where: str) -> None:
        """A listener raised: a defect of whoever registered it."""
        self._counters.add("network.faults")
        self._log.error("a listener failed on %s", where, exc_info=error)
        if self._hooks.active:
            self._hooks.emit(TaskDied(f"network listener ({where})", type(error).__name__))
        self._keeper.fault(error)

    def _emit_completed(
        self, key: ConnectionKey, request: PendingRequest, error: Exception | None, now: float
    ) -> None:
        node_id, lane = key.node_id, key.lane.name.lower()
        api = request.api.NAME
        self._hooks.emit(
            RequestCompleted(
                node_id=node_id,
                lane=lane,
                api=api,
                version=request.version,
                seconds=now - request.sent_at if request.was_sent else 0.0,
                request_bytes=request.request_bytes,
                response_bytes=request.received_bytes,
                error=type(error).__name__ if error is not None else None,
            )
        )
        if request.throttle:
            self._hooks.emit(Throttled(node_id, lane, api, request.throttle))

    def _level(self, address: str, now: float) -> int:
        """WARNING, but not again and again for a peer that stays away or comes and goes."""
        if now - self._warned_at.get(address, -WARN_EVERY) < WARN_EVERY:
            return logging.DEBUG
        self._warned_at[address] = now
        return logging.WARNING
