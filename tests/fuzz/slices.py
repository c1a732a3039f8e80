"""Metadata responses as a client takes them: raw, decoded and merged into its view in slices.

A response that is refused leaves the view and the schedule as they were; one that is taken leaves
a view on which every query works; the sound response behind it makes the client usable.
"""

from __future__ import annotations

import random

from kclient.backoff import Backoff
from kclient.cluster.metadata import MetadataRefresh, MetadataState
from kclient.config import CommonConfig
from kclient.errors import BrokerError, KafkaError, ProtocolError
from kclient.network.frames import RawResponse
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.fuzz.fetches import kind_of
from tests.fuzz.frames import Asked, answer_mutant, usable_connection
from tests.fuzz.seeds import response_seed, seeds_of
from tests.fuzz.targets import Broken, Mutant, Verdict
from tests.unit.cluster.answers import A, B, answer, topic

METADATA = MetadataRequest.API_KEY
TOPICS = ("flights", "planes")
SOON, LATE = 5.0, 1e6
BELIEVED_AFTER = 40
"""Sound responses after which a client must have recovered from any false one."""


def honest(version: int) -> bytes:
    """A sound broker's response."""
    flights = topic("flights", [(1, 4), (2, 5), (1, 6)], topic_id=A if version >= 10 else bytes(16))
    planes = topic(
        "planes", {2: (1, 1), 0: (2, 1), 1: (2, 1)}, topic_id=B if version >= 10 else bytes(16)
    )
    response = answer(flights, planes)
    if version < 1:
        response.controller_id = -1
    if version < 2:
        response.cluster_id = None
    return response.encode(version)


class Slices:
    """The target; see the docstring of the file."""

    traced = True

    def __init__(self) -> None:
        versions = range(MetadataResponse.MIN_VERSION, MetadataResponse.MAX_VERSION + 1)
        ours = [response_seed(METADATA, version, honest(version)) for version in versions]
        self._seeds = [*ours, *ours, *(seed for seeds in seeds_of(METADATA) for seed in seeds)]
        self._others = [seed.root.raw for seed in self._seeds]

    def mutant(self, source: random.Random) -> Mutant:
        """Of a Metadata response of any version."""
        return answer_mutant(source, source.choice(self._seeds), self._others)

    def judge(self, mutant: Mutant) -> Verdict:
        """Through a connection, into a view that has seen a sound response or is fresh."""
        seed = mutant.extra.seed
        connection = usable_connection(METADATA)
        first, _ = Asked(connection, seed, MetadataRequest(), raw=True).outcomes(mutant)
        if not isinstance(first, RawResponse):
            if not isinstance(first, KafkaError):
                raise Broken(f"the request ended with {first!r}")
            return Verdict("no frame", False)
        state = wanting()
        if len(mutant.data) % 2:
            apply_response(state, memoryview(honest(seed.version)), seed.version)
        before = state.view
        try:
            apply_response(state, first.body, seed.version)
        except (ProtocolError, BrokerError) as error:
            if state.view is not before:
                raise Broken(f"the view changed for {error}") from error
            verdict = Verdict(
                kind_of(error), not (isinstance(error, ProtocolError) and not error.offset)
            )
        else:
            look_at(state)
            verdict = Verdict("merged", True)
        finally:
            first.release()
        check_usable(state, seed.version)
        return verdict


def wanting() -> MetadataState:
    """A client's metadata with two topics wanted."""
    state = MetadataState(CommonConfig(), Backoff(0.05, 1.0), random.Random(1))
    for name in TOPICS:
        state.pin(name)
    return state


def apply_response(state: MetadataState, body: memoryview, version: int) -> None:
    """As ``Metadata.apply_response`` does it, without yielding to a loop."""
    ask = MetadataRefresh(TOPICS, True, 10**6)
    steps = state.apply_response_steps(
        ask, MetadataResponse.decode_steps(body, version), version, SOON
    )
    try:
        while True:
            next(steps)
    except StopIteration:
        pass
    finally:
        steps.close()


def look_at(state: MetadataState) -> None:
    """Ask a view about all that clients ask."""
    view = state.view
    repr(view)
    for name in view.topics:
        found = state.usable_topic(name)
        if found is not None and not isinstance(found, KafkaError):
            repr(found)
        for index in range(min(view.partition_count(name) or 0, 50)):
            view.leader(name, index)
            view.leader_epoch(name, index)
        repr(view.partitions_of(name)[:50])
    repr(view.partition_total)
    if not isinstance(state.decide(LATE), MetadataRefresh):
        raise Broken("no refresh is due")


def check_usable(state: MetadataState, version: int) -> None:
    """Sound responses lead to the right leaders again."""
    for _ in range(BELIEVED_AFTER):
        apply_response(state, memoryview(honest(version)), version)
        view = state.view
        if set(view.brokers) != {1, 2}:
            raise Broken(f"the brokers are {sorted(view.brokers)}")
        if [view.leader("flights", index) for index in range(3)] == [1, 2, 1] and view.leader(
            "planes", 2
        ) == 1:
            return
    raise Broken(f"{BELIEVED_AFTER} honest answers don't help: {view.topics}")


def make() -> Slices:
    """The target."""
    return Slices()
