"""Three real Apache Kafka nodes on loopback that tests may kill, pause and restart one by one.

Tests of recovery and chaos use `three_nodes`; all of its calls block, so that async tests call them
through `asyncio.to_thread`. By hand:

    python -m tests.support.nodes start [VERSION]    prints the addresses, and leaves them running
    python -m tests.support.nodes status | stop      stop: all that was left running

A state file in the cache directory lists the processes. They are ended by pid, and only if their
command line proves that they were started here; those of a run that was itself killed are ended by
the next one. Nodes that don't come up are an error with their logs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from kclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kclient.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tests.support import jvm, kafka, node_runs, raw_admin
from tests.support.broker_settings import log_option, uses_zookeeper, write_log_settings
from tests.support.class_path import class_path, parse_version, require_java
from tests.support.node_settings import IDS, PORTS_PER_NODE, write_node_settings
from tests.support.raw_connection import ask_once

ANSWER_TIMEOUT = 5.0
TOPIC_TIMEOUT = 30.0
_JVM_OPTIONS = ("-Xms128m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_POLL = 0.05
_ATTEMPTS = 3
"""Start attempts: another program may take a port between the choice and the bind."""
_NO_ERROR, _TOPIC_EXISTS = 0, 36
_ELECTION_NOT_NEEDED = 84
_CREATE_TOPICS_VERSION, _METADATA_VERSION, _REASSIGN_VERSION, _ELECT_VERSION = 5, 9, 0, 2


class NodesFailed(RuntimeError):
    """A node failed to do what it was asked to; the message names it, with the logs."""


@dataclass(slots=True)
class _Node:
    directory: Path
    port: int
    process: jvm.JavaProcess | None = None
    paused: bool = False


class Nodes:
    """Three running nodes; `three_nodes` makes it.

    Attributes:
        ids: Their node ids.
        bootstrap: Their addresses, as clients take them.
        sasl_bootstrap: Those for clients that log in, of nodes with a session lifetime.
    """

    def __init__(
        self, directory: Path, version: str, ports: Mapping[int, tuple[int, int, int]]
    ) -> None:
        number = parse_version(version)
        self.ids: tuple[int, ...] = tuple(sorted(ports))
        self.bootstrap = ",".join(f"127.0.0.1:{ports[node][0]}" for node in self.ids)
        self.sasl_bootstrap = ",".join(f"127.0.0.1:{ports[node][2]}" for node in self.ids)
        self._version = version
        self._directory = directory
        self._ports = dict(ports)
        self._jars = class_path(version)
        self._java = [require_java(), *_JVM_OPTIONS, log_option(directory, number)]
        self._nodes = {
            node: _Node(directory / str(node), plain) for node, (plain, _, _) in ports.items()
        }

    def address(self, node: int) -> tuple[str, int]:
        """Where clients find a node."""
        return "127.0.0.1", self._nodes[node].port

    def alive(self, node: int) -> bool:
        """Whether its process exists, be it paused."""
        process = self._nodes[node].process
        return process is not None and process.alive()

    def kill(self, node: int) -> None:
        """End a node by SIGKILL; returns when it has ended."""
        self._living(node).kill()
        self._nodes[node].paused = False

    def pause(self, node: int) -> None:
        """Stop a node by SIGSTOP: its sockets stay open, and it sends nothing."""
        self._living(node).pause()
        self._nodes[node].paused = True

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        self._living(node).resume()
        self._nodes[node].paused = False

    def stop(self, node: int) -> None:
        """End a node by SIGTERM, so that it hands over what it leads; returns when it has ended."""
        process = self._living(node)
        if self._nodes[node].paused:
            self.resume(node)
        process.stop(kafka.STOP_GRACE)

    def restart(self, node: int) -> None:
        """Start a node that was killed or stopped; returns when it responds to Metadata."""
        self.launch(node)
        self.wait_ready(node)

    def launch(self, node: int) -> None:
        """Begin to start a node; `wait_ready` waits for it."""
        if self.alive(node):
            raise NodesFailed(f"node {node} runs already")
        one = self._nodes[node]
        one.process = kafka.start_server(self._java, self._jars, one.directory)
        node_runs.write(self._directory, self._run())

    def wait_ready(self, node: int, timeout: float = kafka.START_TIMEOUT) -> None:
        """Wait until a node that was launched responds to Metadata."""
        deadline = time.monotonic() + timeout
        while self.alive(node):
            with contextlib.suppress(raw_admin.RawAdminError):
                raw_admin.wait_ready("{}:{}".format(*self.address(node)), 0.5)
                return
            if time.monotonic() > deadline:
                raise NodesFailed(
                    f"node {node} isn't ready in {timeout:g} s:\n{self.log_tail(node)}"
                )
        raise NodesFailed(f"node {node} ended while starting:\n{self.log_tail(node)}")

    def running(self) -> tuple[int, ...]:
        """The nodes that run and aren't paused."""
        return tuple(node for node in self.ids if self.alive(node) and not self._nodes[node].paused)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic on all three nodes and wait until it is led and in sync.

        ``replicas`` lists each partition's nodes, its leader first; else the broker chooses.
        """
        chosen = [
            CreatableReplicaAssignment(index, list(where))
            for index, where in enumerate(replicas or ())
        ]
        topic = CreatableTopic(
            name,
            -1 if chosen else partitions,
            -1 if chosen else len(self.ids),
            chosen,
            [CreatableTopicConfig(key, str(value)) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest([topic], int(TOPIC_TIMEOUT * 1000))
        answer = ask_once(
            self.address(self.running()[0]),
            request,
            _CREATE_TOPICS_VERSION,
            CreateTopicsResponse,
            TOPIC_TIMEOUT,
        )
        (result,) = answer.topics
        if result.error_code not in (_NO_ERROR, _TOPIC_EXISTS):
            raise NodesFailed(f"topic {name}: error {result.error_code}, {result.error_message}")
        self.wait_full_isr(name, timeout=TOPIC_TIMEOUT)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> the node that leads it, -1 for none, as the first running node knows it."""
        return {part.partition_index: part.leader_id for part in self._partitions(topic)}

    def isr(self, topic: str) -> dict[int, tuple[int, ...]]:
        """Partition -> the nodes in sync, as the first running node knows it."""
        return {part.partition_index: tuple(part.isr_nodes) for part in self._partitions(topic)}

    def lead(self, topic: str, partition: int, node: int) -> None:
        """Have another node lead a partition, whose replicas stay where they are.

        Returns when the controller has decided it; it reaches the nodes a little later.
        """
        (found,) = (one for one in self._partitions(topic) if one.partition_index == partition)
        order = [node, *(other for other in found.replica_nodes if other != node)]
        address = self.address(self.running()[0])
        wanted = [ReassignableTopic(topic, [ReassignablePartition(partition, order)])]
        ordered = ask_once(
            address,
            AlterPartitionReassignmentsRequest(topics=wanted),
            _REASSIGN_VERSION,
            AlterPartitionReassignmentsResponse,
            TOPIC_TIMEOUT,
        )
        errors = [part.error_code for one in ordered.responses for part in one.partitions]
        if ordered.error_code or any(errors):
            raise NodesFailed(f"{topic}-{partition} isn't put on {order}: {ordered}")
        elected = ask_once(
            address,
            ElectLeadersRequest(0, [TopicPartitions(topic, [partition])]),
            _ELECT_VERSION,
            ElectLeadersResponse,
            TOPIC_TIMEOUT,
        )
        results = [
            one for each in elected.replica_election_results for one in each.partition_result
        ]
        bad = [one for one in results if one.error_code not in (_NO_ERROR, _ELECTION_NOT_NEEDED)]
        if elected.error_code or bad:
            raise NodesFailed(f"node {node} isn't elected for {topic}-{partition}: {elected}")

    def wait_full_isr(self, *topics: str, timeout: float = 60.0) -> None:
        """Wait until all replicas are in sync and led, of these topics or of all.

        Every running node has to report it.
        """
        deadline = time.monotonic() + timeout
        while lacking := self._lacking(topics):
            if time.monotonic() > deadline:
                logs = "".join(f"\nnode {node}:\n{self.log_tail(node)}" for node in self.ids)
                raise NodesFailed(f"not in sync after {timeout:g} s: {lacking}{logs}")
            time.sleep(_POLL)

    def metadata(self, node: int, topics: Sequence[str] = ()) -> MetadataResponse:
        """One node's metadata of the cluster and of these topics, or of all."""
        asked = [MetadataRequestTopic(name=name) for name in topics] if topics else None
        return ask_once(
            self.address(node),
            MetadataRequest(asked, allow_auto_topic_creation=False),
            _METADATA_VERSION,
            MetadataResponse,
            ANSWER_TIMEOUT,
        )

    def log_tail(self, node: int, characters: int = 2000) -> str:
        """The end of a node's log, for the report of a failure."""
        log = self._nodes[node].directory / "server.log"
        return log.read_text(errors="replace")[-characters:] if log.exists() else "(no log)"

    def start(self, settings: Mapping[str, object], session_lifetime: float | None = None) -> None:
        """Prepare the folders and start all nodes; `three_nodes` calls it."""
        node_runs.write(self._directory, self._run())
        write_log_settings(self._directory)
        for node, one in self._nodes.items():
            one.directory.mkdir(parents=True)
            write_node_settings(one.directory, node, self._ports, settings, session_lifetime)
        with ThreadPoolExecutor(len(self.ids)) as pool:
            folders = [one.directory for one in self._nodes.values()]
            list(
                pool.map(
                    lambda folder: kafka.format_storage(self._java, self._jars, folder), folders
                )
            )
        for node in self.ids:
            self.launch(node)
        for node in self.ids:
            self.wait_ready(node)
        self.wait_full_isr()

    def end(self) -> None:
        """End all nodes by SIGKILL, paused ones as well, and remove their folders."""
        node_runs.end(self._directory, self._run())

    def leave(self) -> None:
        """Let them run on after the end of this process."""
        node_runs.write(self._directory, replace(self._run(), owner=0))
        jvm.detach()

    def _living(self, node: int) -> jvm.JavaProcess:
        process = self._nodes[node].process
        if process is None or not process.alive():
            raise NodesFailed(f"node {node} doesn't run:\n{self.log_tail(node)}")
        return process

    def _partitions(self, topic: str) -> list[MetadataResponsePartition]:
        (found,) = self.metadata(self.running()[0], [topic]).topics
        if found.error_code:
            raise NodesFailed(f"topic {topic}: error {found.error_code}")
        return found.partitions

    def _lacking(self, topics: Sequence[str]) -> str:
        """What isn't as it should be, empty if nothing."""
        for node in self.running():
            try:
                seen = self.metadata(node, topics)
            except OSError as error:
                return f"node {node}: {error}"
            if {broker.node_id for broker in seen.brokers} != set(self.ids):
                return f"node {node} knows {seen.brokers}"
            for topic in seen.topics:
                bad = [
                    p
                    for p in topic.partitions
                    if p.leader_id < 0 or len(p.isr_nodes) < len(p.replica_nodes)
                ]
                if topic.error_code or bad:
                    return f"node {node}: {topic.name}, error {topic.error_code}, {bad}"
        return ""

    def _run(self) -> node_runs.Run:
        """The content of the state file, for the next run if this one is killed."""
        processes = tuple(one.process for one in self._nodes.values() if one.process is not None)
        ports = tuple(port for pair in self._ports.values() for port in pair)
        return node_runs.Run(os.getpid(), self._version, self.bootstrap, ports, processes)


@contextlib.contextmanager
def three_nodes(
    version: str = "4.3.0",
    *,
    purpose: str,
    settings: Mapping[str, object] | None = None,
    session_lifetime: float | None = None,
) -> Iterator[Nodes]:
    """Three nodes of one's own, for the time of the context.

    Args:
        version: Of Apache Kafka, 3.3 or newer.
        purpose: Names their folder.
        settings: More lines for server.properties, which override what is usual here.
        session_lifetime: Seconds after which clients of `Nodes.sasl_bootstrap` must log in again;
            there is no such listener by default.

    Raises:
        ValueError: Of another version.
        ToolMissing: Java or Maven are not installed.
        NodesFailed: They did not come up; the ends of their logs are in the message.
    """
    nodes = _start(version, purpose, settings or {}, session_lifetime)
    try:
        yield nodes
    finally:
        nodes.end()


def _start(
    version: str,
    purpose: str,
    settings: Mapping[str, object],
    session_lifetime: float | None = None,
) -> Nodes:
    if uses_zookeeper(parse_version(version)):
        raise ValueError(f"three KRaft nodes are Apache Kafka 3.3 or newer, not {version}")
    for attempt in range(_ATTEMPTS):
        count = len(IDS) * PORTS_PER_NODE
        directory, free = node_runs.begin(purpose, version, count, attempt)
        ports = {
            node: (free[3 * place], free[3 * place + 1], free[3 * place + 2])
            for place, node in enumerate(IDS)
        }
        nodes = Nodes(directory, version, ports)
        try:
            nodes.start(settings, session_lifetime)
            return nodes
        except BaseException as error:
            port_taken = any("BindException" in nodes.log_tail(node, 100_000) for node in IDS)
            nodes.end()
            if port_taken and attempt + 1 < _ATTEMPTS and isinstance(error, NodesFailed):
                continue
            raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    command, *rest = arguments or [""]
    if command == "start" and len(rest) <= 1:
        try:
            nodes = _start(rest[0] if rest else "4.3.0", "by-hand", {})
        except (ValueError, RuntimeError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
        nodes.leave()
        sys.stdout.write(f"{nodes.bootstrap}\n")
    elif command == "status" and not rest:
        for folder, run in node_runs.runs():
            alive = sum(process.alive() for process in run.processes)
            sys.stdout.write(f"{folder.name} {run.version} {run.bootstrap} {alive} alive\n")
    elif command == "stop" and rest in ([], ["all"]):
        for folder, run in node_runs.runs():
            if rest or run.owner == 0 or run.left_behind():
                node_runs.end(folder, run)
                sys.stdout.write(f"{folder.name} stopped\n")
    else:
        sys.stderr.write(
            "usage: python -m tests.support.nodes start [VERSION] | status | stop [all]\n"
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
