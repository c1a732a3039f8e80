"""``ReplicaFetcherManager``: a broker fetches from the leaders of what it follows, over the wire.

One ``ReplicaFetcher`` per leader, from the first partition that the broker follows until it is
down. A fetch waits at the leader until there is news, however long that takes: an idle cluster sets
no timer and has no task. ``follower_fetch.py`` makes the requests and handles the responses.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from kclient.protocol.messages.fetch import FetchResponse
from kclient.protocol.messages.list_offsets import ListOffsetsResponse
from kclient.testing.follower_fetch import FETCH_VERSION, LIST_OFFSETS_VERSION, FollowerFetch
from kclient.testing.inter_broker import BrokerConnection, dial
from kclient.testing.replica import Replica
from kclient.testing.timers import Timer

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

logger = logging.getLogger("kclient.testing")


class ReplicaFetcherManager:
    """The followers of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fetchers: dict[int, ReplicaFetcher] = {}

    def refresh(self) -> None:
        """Leaders of partitions, or reachability of brokers, changed."""
        led: dict[int, list[Replica]] = {}
        for replica in self._broker.replicas:
            leader = replica.facts.leader
            if leader >= 0 and leader != self._broker.node_id:
                led.setdefault(leader, []).append(replica)
        for leader in {**led, **self._fetchers}:
            fetcher = self._fetchers.get(leader)
            if fetcher is None:
                fetcher = self._fetchers[leader] = ReplicaFetcher(self._broker, leader)
            fetcher.follow(led.get(leader, []))

    def close(self) -> list[asyncio.Task[None]]:
        """Close all fetchers; return the dials that the caller must wait for."""
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        return [dialing for one in fetchers if (dialing := one.close()) is not None]


class ReplicaFetcher:
    """Fetches from one leader.

    Its only task is a dial to a socket, which ends by itself; timers are for the next attempt, for
    partitions that the leader refused, and for a leader that removed this follower from an ISR and
    doesn't respond.
    """

    def __init__(self, broker: Broker, leader: int) -> None:
        self._broker = broker
        self._leader = leader
        control_plane = broker.control_plane
        self._fetch = FollowerFetch(
            broker.node_id, control_plane.tally, control_plane.quorum.notify
        )
        self._peer: BrokerConnection | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._pause = Timer(broker.call_later, self._try_again)
        self._revival = Timer(broker.call_later, self._revive)
        self._overdue = Timer(broker.call_later, self._give_up)
        self._closed = False
        self._asked_in = -1

    def follow(self, replicas: list[Replica]) -> None:
        """Fetch exactly these from now on."""
        changed = self._fetch.assign(replicas)
        if self._fetch.is_idle or not self._broker.reaches(self._leader):
            self._hang_up()
        elif self._peer is None:
            self._pause.cancel()
            self._connect()
        elif not self._peer.is_waiting:
            self._next()
        elif changed or self._is_in_new_session():
            self._broker.wake(self._leader)
        self._watch_overdue()

    def _is_in_new_session(self) -> bool:
        """Whether the broker's session is new: a leader counts only fetches of the current one."""
        return self._broker.session not in (-1, self._asked_in)

    def close(self) -> asyncio.Task[None] | None:
        """Close it; return the dial that the caller must wait for, if there is one."""
        self._closed = True
        self._hang_up()
        self._watch_overdue()
        return self._dialing

    # Connecting

    def _connect(self) -> None:
        if self._dialing is not None or self._closed:
            return
        peer = BrokerConnection(f"broker-{self._broker.node_id}", lambda why: self._lost(peer, why))
        self._dialing = dial(self._broker, self._leader, peer, partial(self._dialed, peer))

    def _dialed(self, peer: BrokerConnection, error: OSError | None) -> None:
        self._dialing = None
        if error is not None:
            self._retry_later(str(error))
        elif self._closed or self._fetch.is_idle or not self._broker.reaches(self._leader):
            peer.close()
        else:
            self._begin(peer)

    def _begin(self, peer: BrokerConnection) -> None:
        self._peer = peer
        self._fetch.begin()
        self._next()

    def _lost(self, peer: BrokerConnection, why: str) -> None:
        if self._peer is peer:
            self._peer = None
            self._overdue.cancel()
            self._retry_later(why)

    def _retry_later(self, why: str) -> None:
        logger.debug("broker=%d lost leader=%d: %s", self._broker.node_id, self._leader, why)
        if not (self._pause.is_set or self._closed or self._fetch.is_idle):
            self._pause.set(self._broker.config.replica_fetch_backoff)

    def _try_again(self) -> None:
        if self._peer is None and not self._fetch.is_idle and self._broker.reaches(self._leader):
            self._connect()

    def _hang_up(self) -> None:
        self._pause.cancel()
        self._overdue.cancel()
        self._revival.cancel()
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    # Fetching

    def _next(self) -> None:
        """Send the next request."""
        peer = self._peer
        if peer is None or self._closed or self._fetch.all_delayed:
            return
        if self._is_in_new_session():
            self._asked_in = self._broker.session
            self._fetch.begin()
        stray = self._fetch.list_offsets_request()
        if stray is not None:
            peer.call(stray, LIST_OFFSETS_VERSION, ListOffsetsResponse, self._located)
        else:
            request = self._fetch.request(self._broker.session)
            peer.call(request, FETCH_VERSION, FetchResponse, self._fetched)

    def _fetched(self, response: FetchResponse) -> None:
        backoff = self._broker.config.replica_fetch_backoff
        if not self._fetch.take(response, self._broker.now(), backoff):
            self._hang_up()
            self._retry_later(f"error {response.error_code}, session {response.session_id}")
            return
        self._overdue.cancel()
        self._watch_overdue()
        self._watch_revival()
        self._next()

    def _located(self, response: ListOffsetsResponse) -> None:
        self._fetch.locate(response, self._broker.now(), self._broker.config.replica_fetch_backoff)
        self._watch_revival()
        self._next()

    def _watch_revival(self) -> None:
        due = self._fetch.next_retry
        if due is not None and not self._revival.is_set:
            self._revival.set(due - self._broker.now())

    def _revive(self) -> None:
        if self._fetch.revive(self._broker.now()) and self._peer is not None:
            if self._peer.is_waiting:
                self._broker.wake(self._leader)
            else:
                self._next()
        self._watch_revival()

    def _watch_overdue(self) -> None:
        """Set a timer if a leader removed this follower from an ISR: it may have lost the fetch."""
        if self._closed or self._peer is None or not self._fetch.is_left_out():
            self._overdue.cancel()
        elif not self._overdue.is_set:
            self._overdue.set(self._broker.config.replica_socket_timeout)

    def _give_up(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
            self._connect()
