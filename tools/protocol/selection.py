"""Picks the messages that are generated: not those that only brokers and controllers use.

A feature that needs one of them takes its name out of the list and runs the generator. The names
of these APIs are generated all the same, as brokers list them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tools.protocol.layout import api_name
from tools.protocol.schema import Definition

BROKER_APIS = frozenset(
    (
        # from brokers to controllers, and among controllers
        "AllocateProducerIds",
        "AlterPartition",
        "AssignReplicasToDirs",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControllerRegistration",
        "EndQuorumEpoch",
        "Envelope",
        "FetchSnapshot",
        "UpdateRaftVoter",
        "Vote",
        # from group coordinators and leaders to share coordinators
        "DeleteShareGroupState",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "ReadShareGroupStateSummary",
        "WriteShareGroupState",
        # from the members of Kafka Streams
        "StreamsGroupHeartbeat",
    )
)
"""APIs that no client of kclient sends, and no broker of the embedded cluster serves."""

_BROKER_RECORDS = (
    "DefaultPrincipalData",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LegacyOffsetCommit",  # offsets as brokers older than 0.9 wrote them
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "StreamsGroup",
    "VotersRecord",
)
"""Prefixes of the names of records that kclient neither reads nor writes."""


def generated(definitions: Iterable[Definition]) -> list[Definition]:
    """The definitions that classes are made of; raises ValueError where a list names no other."""
    kept, unneeded = [], set()
    for one in definitions:
        is_api = one.kind in ("request", "response")
        name = api_name(one)
        if is_api and name in BROKER_APIS:
            unneeded.add(name)
        elif not is_api and one.name.startswith(_BROKER_RECORDS):
            unneeded.update(start for start in _BROKER_RECORDS if one.name.startswith(start))
        else:
            kept.append(one)
    stale = {*BROKER_APIS, *_BROKER_RECORDS} - unneeded
    if stale:
        raise ValueError(f"Kafka has no {', '.join(sorted(stale))}: take it out of the list")
    return kept
