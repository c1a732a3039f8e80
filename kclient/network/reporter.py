"""Reports what happens in the network package: log, hooks, counters, and faults.

Called by the node connections of one client. A *fault* is an exception out of a listener: it must
not break a channel, and must not be swallowed either, so it is logged with its traceback and
handed to the client's supervisor.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient.clock import Clock
    from kclient.hooks import Counters, Hooks
    from kclient.network.channel import Channel
    from kclient.network.client import TaskSupervisor
    from kclient.network.connection import Connection
    from kclient.network.nodes import ConnectionKey
    from kclient.network.requests import PendingRequest

logger = logging.getLogger("kclient.network")

WARN_EVERY = 10.0
"""Seconds between two warnings about one address at least; what lies between is logged as DEBUG."""
WARN_SELDOM = 640.0
"""While it stays away the time between them doubles, up to this."""

REMEMBERED = 1000
"""Addresses of which the latest trouble is remembered."""


@dataclass(slots=True)
class _Trouble:
    """What was logged about an address that failed.

    Attributes:
        since: When it failed first since it was usable.
        failures: How often, since then.
        warned_at: When there was a warning about it.
        gap: Seconds until the next warning.
    """

    since: float
    failures: int = 0
    warned_at: float = -WARN_SELDOM
    gap: float = WARN_EVERY


class Reporter:
    """Log, hooks and counters of one client's network.

    Args:
        hooks: The client's observers.
        counters: The client's numbers; ours begin with ``network.``.
        supervisor: Hears of each exception that escaped from a listener.
    """

    def __init__(self, hooks: Hooks, counters: Counters, supervisor: TaskSupervisor) -> None:
        self._hooks = hooks
        self._log = hooks.log(logger)
        self._counters = counters
        self._supervisor = supervisor
        self._troubles: dict[str, _Trouble] = {}
        self._completed = 0
        counters.gauge("network.requests", lambda: self._completed)

    def opened(self, channel: Channel, seconds: float, now: float) -> None:
        """A connection became usable, ``seconds`` after its dial began."""
        connection = channel.connection
        self._counters.add("network.connections_opened")
        self._recovered(connection, now)
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("connected %s address=%s", connection.key, connection.address)
        if self._hooks.active:
            from kclient.events import ConnectionOpened

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
        if channel.intentional:
            self._log.debug("closed %s in_flight=%d reason=%s", connection.key, in_flight, reason)
        else:
            self._failed(connection, now, established=established)
        if self._hooks.active:
            from kclient.events import ConnectionClosed

            node_id, lane = connection.key
            self._hooks.emit(
                ConnectionClosed(node_id, lane.name.lower(), established, reason, in_flight)
            )

    def completed(
        self, key: ConnectionKey, request: PendingRequest, error: Exception | None, clock: Clock
    ) -> None:
        """A request got its answer, or failed."""
        if error is None:
            self._completed += 1
        else:
            self._counters.add("network.requests_failed")
        if self._hooks.active:
            self._emit_completed(key, request, error, clock.now())

    def listener_failed(self, error: Exception, where: str) -> None:
        """A listener raised: a defect of its owner."""
        self._counters.add("network.faults")
        self._log.error("a listener failed on %s", where, exc_info=error)
        if self._hooks.active:
            from kclient.events import TaskDied

            self._hooks.emit(TaskDied(f"network listener ({where})", type(error).__name__))
        self._supervisor.listener_failed(error)

    def _emit_completed(
        self, key: ConnectionKey, request: PendingRequest, error: Exception | None, now: float
    ) -> None:
        from kclient.events import RequestCompleted, Throttled

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

    def _failed(self, connection: Connection, now: float, *, established: bool) -> None:
        """WARNING, but not again and again for a peer that stays away or comes and goes."""
        trouble = self._troubles.get(connection.address)
        if trouble is None:
            if len(self._troubles) >= REMEMBERED:  # brokers may move without end
                del self._troubles[next(iter(self._troubles))]
            trouble = self._troubles[connection.address] = _Trouble(now)
        if not trouble.failures:
            trouble.since = now
        trouble.failures += 1
        level = logging.DEBUG
        if now - trouble.warned_at >= trouble.gap:
            level, trouble.warned_at = logging.WARNING, now
            if trouble.failures > 1:
                trouble.gap = min(2 * trouble.gap, WARN_SELDOM)
        if established:
            self._log.log(
                level,
                "connection lost %s in_flight=%d reason=%s",
                connection.key,
                connection.lost_requests,
                connection.error,
            )
        else:
            self._log.log(
                level,
                "can't connect %s failures=%d for=%.0fs reason=%s",
                connection.key,
                trouble.failures,
                now - trouble.since,
                connection.error,
            )

    def _recovered(self, connection: Connection, now: float) -> None:
        """Say so, as INFO where there was a warning about it since it was usable."""
        trouble = self._troubles.get(connection.address)
        if trouble is None or not trouble.failures:
            return
        warned = trouble.warned_at >= trouble.since
        self._log.log(
            logging.INFO if warned else logging.DEBUG,
            "usable again %s address=%s failures=%d after=%.1fs",
            connection.key,
            connection.address,
            trouble.failures,
            now - trouble.since,
        )
        trouble.failures, trouble.gap = 0, WARN_EVERY
