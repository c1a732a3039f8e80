"""Changing topics: asks the controller, then waits until the brokers show the change.

Called by ``Admin``. The questions are in ``topics``, the wait in ``visibility``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kclient.admin.defaults import broker_defaults
from kclient.admin.new_topic import CreatedTopic, DeletedTopic, NewTopic
from kclient.admin.topics import (
    CreatePartitions,
    CreateTopics,
    DefaultsNeeded,
    DeleteTopics,
    TopicRef,
)
from kclient.admin.visibility import GONE, wait_until_seen
from kclient.cluster.fanout import ask_all
from kclient.errors import KafkaError

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore


async def create_topics(
    core: ClientCore, topics: Mapping[str, NewTopic], validate_only: bool, timeout: float
) -> dict[str, CreatedTopic | KafkaError]:
    """See ``Admin.create_topics``."""
    deadline = core.clock.now() + timeout
    question = CreateTopics(topics, validate_only=validate_only)
    outcomes = await ask_all(core.calls, question, topics, timeout)
    lacking = [name for name, got in outcomes.items() if isinstance(got, DefaultsNeeded)]
    if lacking:
        left = max(0.001, deadline - core.clock.now())
        outcomes |= await _with_defaults(core, topics, lacking, validate_only, left)
    made = {
        name: got.partitions or 1 for name, got in outcomes.items() if isinstance(got, CreatedTopic)
    }
    if made and not validate_only:
        await wait_until_seen(core, made, deadline - core.clock.now())
    return outcomes


async def _with_defaults(
    core: ClientCore,
    topics: Mapping[str, NewTopic],
    lacking: Sequence[str],
    validate_only: bool,
    timeout: float,
) -> dict[str, CreatedTopic | KafkaError]:
    """Ask again for those that an old controller could not fill in."""
    deadline = core.clock.now() + timeout
    try:
        partitions, replicas = await broker_defaults(core, timeout)
    except KafkaError as error:
        return dict.fromkeys(lacking, error)
    filled = {name: topics[name].with_defaults(partitions, replicas) for name in lacking}
    question = CreateTopics(filled, validate_only=validate_only)
    return await ask_all(core.calls, question, filled, max(0.001, deadline - core.clock.now()))


async def delete_topics(
    core: ClientCore, refs: Sequence[TopicRef], timeout: float
) -> dict[TopicRef, DeletedTopic | KafkaError]:
    """See ``Admin.delete_topics``."""
    deadline = core.clock.now() + timeout
    outcomes = await ask_all(core.calls, DeleteTopics(), refs, timeout)
    gone = {
        got.name: GONE
        for got in outcomes.values()
        if isinstance(got, DeletedTopic) and got.name is not None
    }
    if gone:
        await wait_until_seen(core, gone, deadline - core.clock.now())
    return outcomes


async def create_partitions(
    core: ClientCore,
    totals: Mapping[str, int],
    assignments: Mapping[str, Sequence[Sequence[int]]],
    validate_only: bool,
    timeout: float,
) -> dict[str, int | KafkaError]:
    """See ``Admin.create_partitions``."""
    deadline = core.clock.now() + timeout
    question = CreatePartitions(totals, assignments, validate_only=validate_only)
    outcomes = await ask_all(core.calls, question, totals, timeout)
    grown = {name: got for name, got in outcomes.items() if isinstance(got, int)}
    if grown and not validate_only:
        await wait_until_seen(core, grown, deadline - core.clock.now())
    return outcomes
