"""Waiting until every broker shows what the controller has done to topics.

A controller answers before all brokers have heard of it, so a client that goes on to another broker
might be told that its new topic doesn't exist. ``Admin`` waits here for a moment after a change;
the change itself is done, so running out of time is no error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kclient.admin.descriptions import request_for
from kclient.errors import KafkaError
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore

logger = logging.getLogger("kclient.admin")

PATIENCE = 5.0
"""Seconds to wait at most: propagation takes milliseconds, unless a broker is in trouble."""

BROKERS_ASKED = 12
"""In larger clusters only so many are asked; what is left is what ``wait_for_topic`` bridges."""

GONE = 0
"""The number of partitions of a topic that doesn't exist any more."""


async def wait_until_seen(core: ClientCore, counts: Mapping[str, int], time_left: float) -> bool:
    """Wait until the brokers show each topic with at least so many partitions, each with a leader.

    Args:
        core: The client's.
        counts: Expected number of partitions by topic name; ``GONE`` for a deleted one.
        time_left: Seconds that the caller has left.

    Returns:
        Whether all of them do. A broker that can't be asked doesn't count.
    """
    deadline = core.clock.now() + min(time_left, PATIENCE)
    waiting = sorted(core.metadata.view.brokers)[:BROKERS_ASKED]
    attempt = 0
    while waiting:
        left = deadline - core.clock.now()
        if left <= 0:
            core.hooks.log(logger).info(
                "topics=%d not yet seen by brokers=%s", len(counts), waiting
            )
            return False
        waiting = await _unaware(core, waiting, counts, left)
        if waiting:
            # Starts shorter than the back-off of failures: nothing has failed.
            await core.calls.pause(min(0.02 * 2**attempt, 0.5, left))
            attempt += 1
    return True


async def _unaware(
    core: ClientCore, node_ids: list[int], counts: Mapping[str, int], timeout: float
) -> list[int]:
    """Those of the brokers that don't show it yet."""

    def build(version: int) -> MetadataRequest:
        return request_for(list(counts), version)

    futures = [
        (node_id, core.network.send(node_id, build, api=MetadataRequest, timeout=timeout))
        for node_id in node_ids
    ]
    unaware = []
    for node_id, future in futures:
        try:
            if not _shows(await future, counts):
                unaware.append(node_id)
        except KafkaError as error:
            core.calls.check_ended()
            core.hooks.log(logger).debug("node=%d can't be asked for topics: %s", node_id, error)
    return unaware


def _shows(response: MetadataResponse, counts: Mapping[str, int]) -> bool:
    shown = {
        topic.name: sum(1 for p in topic.partitions if p.leader_id >= 0)
        for topic in response.topics
        if not topic.error_code
    }
    return all(
        name not in shown if count == GONE else shown.get(name, GONE) >= count
        for name, count in counts.items()
    )
