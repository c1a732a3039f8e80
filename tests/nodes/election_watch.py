"""Watches on the nodes themselves when partitions get another leader, independently of clients.

A thread polls the metadata of every running node, over connections of its own. The instant that it
gives for an election is never too late: that of the last request to which the node still responded
with the former leader. Tests of recovery measure from it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.nodes import Nodes, NodesFailed
from tests.support.raw_connection import RawConnection

PERIOD = 0.02
"""Seconds between two rounds of requests."""
_PATIENCE = 0.5
"""Seconds for a response: a node that is paused must not keep the others from being polled."""
_BEGINS_WITHIN = 10.0
_VERSION = 9


@dataclass(frozen=True, slots=True)
class Election:
    """A partition got a leader."""

    partition: int
    leader: int
    epoch: int
    node: int
    """The node that reported it first."""
    at: float
    """On the monotonic clock: it was not earlier."""
    seen: float
    """On the monotonic clock: it was not later."""


class ElectionWatch:
    """The leaders of a topic's partitions, and since when; `watching` starts it."""

    def __init__(self, nodes: Nodes, topic: str) -> None:
        self._nodes = nodes
        self._request = MetadataRequest(
            [MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        self._connections: dict[int, RawConnection] = {}
        self._asked: dict[int, float] = {}
        self._epochs: dict[int, int] = {}
        self._latest: dict[int, Election] = {}
        self._stopped = threading.Event()
        self.begun = threading.Event()
        """Set once it knows the leaders."""

    @property
    def latest(self) -> Mapping[int, Election]:
        """The last election of each partition."""
        return self._latest

    def run(self) -> None:
        """Poll until `stop`."""
        while not self._stopped.wait(PERIOD):
            for node in self._nodes.running():
                try:
                    self._look(node)
                except OSError:  # it was killed or stopped meanwhile, or isn't up yet
                    self._drop(node)
            if self._latest:
                self.begun.set()
        for node in tuple(self._connections):
            self._drop(node)

    def stop(self) -> None:
        """Have `run` end."""
        self._stopped.set()

    def _look(self, node: int) -> None:
        connection = self._connections.get(node)
        if connection is None:
            connection = RawConnection(self._nodes.address(node), _PATIENCE)
            self._connections[node] = connection
        asked = time.monotonic()
        answer = connection.ask(self._request, _VERSION, MetadataResponse)
        (topic,) = answer.topics
        for partition in topic.partitions:
            known = self._epochs.get(partition.partition_index, -1)
            if partition.leader_id < 0 or partition.leader_epoch <= known:
                continue
            index, epoch = partition.partition_index, partition.leader_epoch
            self._epochs[index] = epoch
            former = self._latest.get(index)
            if former is None or former.leader != partition.leader_id:
                at = self._asked.get(node, asked)
                seen = time.monotonic()
                self._latest[index] = Election(index, partition.leader_id, epoch, node, at, seen)
        self._asked[node] = asked

    def _drop(self, node: int) -> None:
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()


@contextlib.contextmanager
def watching(nodes: Nodes, topic: str) -> Iterator[ElectionWatch]:
    """Watch the leaders of a topic for the time of the context."""
    watch = ElectionWatch(nodes, topic)
    thread = threading.Thread(target=watch.run, name="election-watch")
    thread.start()
    try:
        if not watch.begun.wait(_BEGINS_WITHIN):
            raise NodesFailed(f"no node tells who leads {topic}")
        yield watch
    finally:
        watch.stop()
        thread.join()
