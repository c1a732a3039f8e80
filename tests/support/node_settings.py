"""The settings of the three nodes of `tests.support.nodes`: combined KRaft, quick to fail over.

A broker that is silent for two seconds is fenced, and its partitions are led by others; a quorum
without its leader has another after about a second. Everything else follows the single brokers of
`broker_settings`. Pure text: it starts nothing and chooses no ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.broker_settings import COMMON, sasl_settings, write_properties

IDS = (1, 2, 3)
PORTS_PER_NODE = 3
"""For clients and the other brokers, for the controllers, and for clients that log in."""

_REPLICATION: Mapping[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    **{
        f"{topic}.{setting}": value
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        for setting, value in (("replication.factor", 3), ("num.partitions", 3))
    },
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.min.isr": 2,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # A leader stays where a test has put it.
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    # Not a second, by default, until a follower asks the next leader.
    "replica.fetch.backoff.ms": 100,
}
_FAILOVER: Mapping[str, object] = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.election.backoff.max.ms": 300,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.request.timeout.ms": 1000,
    "controller.quorum.retry.backoff.ms": 20,
}


def write_node_settings(
    directory: Path,
    node: int,
    ports: Mapping[int, tuple[int, int, int]],
    more: Mapping[str, object],
    session_lifetime: float | None = None,
) -> None:
    """Write the server.properties of one node; ``ports`` has those of all, ``more`` overrides.

    With ``session_lifetime``, in seconds, there is a listener for clients that log in by SASL.
    """
    plain, control, sasl = ports[node]
    listener = f"PLAINTEXT://127.0.0.1:{plain}"
    secured: dict[str, object] = {}
    if session_lifetime is not None:
        listener += f",SASL_PLAINTEXT://127.0.0.1:{sasl}"
        secured = sasl_settings(("sasl_plaintext",), session_lifetime)
    write_properties(
        directory / "server.properties",
        {
            **COMMON,
            **_REPLICATION,
            **_FAILOVER,
            "process.roles": "broker,controller",
            "node.id": node,
            "broker.rack": f"rack-{node}",
            "log.dirs": directory / "data",
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": listener,
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{other}@127.0.0.1:{ports[other][1]}" for other in sorted(ports)
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            **secured,
            **more,
        },
    )
