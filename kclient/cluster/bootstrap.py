"""The first metadata of a client, from whichever bootstrap address answers first.

Called by ``ClientCore.start``. All addresses are tried, one that doesn't answer within a moment
doesn't hold up the next, and failed ones are tried again until time is up: a service may come up
before its brokers do. Then the error names each address with its reason; at once where waiting
can't help, as with a wrong certificate or a listener of TLS that is spoken to without it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kclient.cluster.updater import release_late
from kclient.cluster.wakeups import Wakeup
from kclient.errors import (
    BackgroundTaskDied,
    BootstrapFailed,
    BrokerUnreachable,
    ClientClosed,
    KafkaError,
)

if TYPE_CHECKING:
    import random

    from kclient.backoff import Backoff
    from kclient.clock import Clock
    from kclient.cluster.metadata import MetadataRefresh
    from kclient.cluster.updater import MetadataUpdater
    from kclient.network import NetworkClient, RawResponse, RequestFuture

STAGGER = 0.5
"""Seconds that an address has for itself before the next one is tried beside it."""


class Bootstrap:
    """One search for a first view; ``run`` once. Has no tasks.

    Args:
        updater: Makes the request and takes the answer.
        network: Knows the addresses.
        backoff: Waits between two attempts at one address.
    """

    def __init__(
        self,
        updater: MetadataUpdater,
        network: NetworkClient,
        *,
        clock: Clock,
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        self._updater = updater
        self._network = network
        self._clock = clock
        self._backoff = backoff
        self._rng = rng
        self._addresses = {node.node_id: node.address for node in network.bootstrap_nodes}
        self._reasons: dict[int, KafkaError] = {}
        self._failures = dict.fromkeys(self._addresses, 0)
        self._retry_at = dict.fromkeys(self._addresses, 0.0)
        self._under_way: dict[int, RequestFuture[RawResponse]] = {}
        self._next_start = 0.0
        self._news = Wakeup()

    async def run(self, timeout: float) -> None:
        """Give the updater its first view.

        Raises:
            BootstrapFailed: No address led to one within ``timeout`` seconds, or ever will; the
                text has the reason of each, and ``__cause__`` is one of them.
        """
        ask = self._updater.initial_refresh()
        try:
            async with asyncio.timeout(timeout):
                while not await self._collect(ask):
                    if self._hopeless():
                        raise self._failed("") from self._first_reason()
                    self._start(ask)
                    await self._wait()
        except TimeoutError:
            raise self._failed(f" within {timeout:g} s") from self._first_reason()
        finally:
            for future in self._under_way.values():
                future.add_listener(release_late)

    async def _collect(self, ask: MetadataRefresh) -> bool:
        """Look at what came in; True once an answer became the view."""
        for node_id, future in [*self._under_way.items()]:
            if future.done:
                del self._under_way[node_id]
                try:
                    await self._updater.apply_response(ask, future.result())
                    return True
                except (ClientClosed, BackgroundTaskDied):
                    raise  # the client ended while it started: there is nothing to report to
                except KafkaError as error:
                    self._note(node_id, error)
        return False

    def _note(self, node_id: int, error: KafkaError) -> None:
        if node_id not in self._reasons:
            self._updater.log.debug("bootstrap %s failed: %s", self._addresses[node_id], error)
        self._reasons[node_id] = error
        delay = self._backoff.delay(self._failures[node_id], self._rng)
        self._failures[node_id] += 1
        self._retry_at[node_id] = self._clock.now() + delay

    def _start(self, ask: MetadataRefresh) -> None:
        """Begin at one more address, if there is one to begin at."""
        now = self._clock.now()
        ready = [
            n for n in self._addresses if n not in self._under_way and self._retry_at[n] <= now
        ]
        if ready:
            # The one with the fewest failures first, in the order in which they were given.
            node_id = min(ready, key=self._failures.__getitem__)
            future = self._updater.send(ask, node_id)
            self._under_way[node_id] = future
            self._next_start = now + STAGGER
            future.add_listener(lambda _: self._news.notify())

    async def _wait(self) -> None:
        """Until something comes in (a failure lets the next one begin), or time is up for that."""
        idle = [n for n in self._addresses if n not in self._under_way]
        due = min((self._retry_at[n] for n in idle), default=self._clock.now() + STAGGER)
        if self._under_way:
            due = max(due, self._next_start)
        await self._news.sleep(due - self._clock.now())

    def _hopeless(self) -> bool:
        """Every address has shown that it is not to be reached with these settings."""
        reasons = self._reasons
        return len(reasons) == len(self._addresses) and all(
            isinstance(error, BrokerUnreachable) and not error.retriable
            for error in reasons.values()
        )

    def _first_reason(self) -> KafkaError | None:
        return next(iter(self._reasons.values()), None)

    def _failed(self, when: str) -> BootstrapFailed:
        reasons = []
        for node_id, address in self._addresses.items():
            reason = str(self._reasons.get(node_id, "no answer"))
            reasons.append(reason if address in reason else f"{address}: {reason}")
        failed = BootstrapFailed(
            f"no bootstrap address could be used{when}: " + "; ".join(reasons),
            hint="check bootstrap, that the brokers are up, and that security fits the listener, "
            "and make a new client to try again",
        )
        failed.retriable = not self._hopeless()
        return failed
