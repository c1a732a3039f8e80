"""The three nodes themselves: kill, pause, resume and restart work, the reported ISR is true."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import jvm, node_runs
from tests.support.nodes import Nodes, NodesFailed, three_nodes
from tests.support.raw_connection import RawConnection

WITHIN = 15.0
SILENCE = 0.5
ROUND = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]


def await_that(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline, f"not so within {WITHIN:g} s: {what}"
        time.sleep(0.02)


def await_leaders(nodes: Nodes, topic: str, leaders: dict[int, int]) -> None:
    await_that(lambda: nodes.leaders(topic) == leaders, f"{leaders} lead")


def test_all_know_each_other_in_racks_of_their_own(nodes: Nodes) -> None:
    for node in nodes.ids:
        seen = {one.node_id: one for one in nodes.metadata(node).brokers}
        assert {key: (one.host, one.port) for key, one in seen.items()} == {
            key: nodes.address(key) for key in nodes.ids
        }
        assert [seen[key].rack for key in nodes.ids] == ["rack-1", "rack-2", "rack-3"]
    assert nodes.bootstrap == ",".join("{}:{}".format(*nodes.address(node)) for node in nodes.ids)


def test_a_topic_is_on_all_three_where_it_was_put(nodes: Nodes, topic: str) -> None:
    nodes.create_topic(topic, replicas=ROUND)
    assert nodes.leaders(topic) == {0: 1, 1: 2, 2: 3}
    assert all(set(where) == {1, 2, 3} for where in nodes.isr(topic).values())


def test_a_node_that_is_killed_has_ended_and_another_leads(nodes: Nodes, topic: str) -> None:
    nodes.create_topic(topic, replicas=ROUND)
    nodes.kill(2)
    assert (nodes.alive(1), nodes.alive(2), nodes.alive(3)) == (True, False, True)
    with pytest.raises(ConnectionRefusedError):
        RawConnection(nodes.address(2))
    await_leaders(nodes, topic, {0: 1, 1: 3, 2: 3})
    await_that(lambda: all(2 not in where for where in nodes.isr(topic).values()), "not in sync")
    with pytest.raises(NodesFailed, match="not in sync"):
        nodes.wait_full_isr(topic, timeout=0.0)
    nodes.restart(2)
    assert nodes.metadata(2).brokers
    nodes.wait_full_isr(topic)
    assert all(set(where) == {1, 2, 3} for where in nodes.isr(topic).values())


def test_a_node_that_is_paused_is_up_and_sends_nothing_until_resumed(
    nodes: Nodes, topic: str
) -> None:
    nodes.create_topic(topic, replicas=[(3, 1, 2)])
    nodes.pause(3)
    assert nodes.alive(3)
    assert nodes.running() == (1, 2)
    with pytest.raises(TimeoutError), RawConnection(nodes.address(3), SILENCE) as accepted:
        accepted._read(1)
    await_leaders(nodes, topic, {0: 1})
    nodes.resume(3)
    nodes.wait_full_isr(topic)
    assert nodes.metadata(3, [topic]).topics[0].partitions[0].leader_id == 1


def test_a_node_that_is_stopped_hands_over_first(nodes: Nodes, topic: str) -> None:
    nodes.create_topic(topic, replicas=[(1, 2, 3)])
    nodes.pause(1)  # a paused node must still be ended
    nodes.stop(1)
    assert not nodes.alive(1)
    assert nodes.leaders(topic) == {0: 2}


def test_a_partition_is_led_by_the_node_that_it_was_given_to(nodes: Nodes, topic: str) -> None:
    nodes.create_topic(topic, replicas=[(1, 2, 3)])
    for leader in (3, 2, 1):
        nodes.lead(topic, 0, leader)
        await_leaders(nodes, topic, {0: leader})


def test_what_can_not_be_done_is_an_error(nodes: Nodes, topic: str) -> None:
    with pytest.raises(NodesFailed, match="runs already"):
        nodes.restart(1)
    nodes.kill(1)
    for deed in (nodes.kill, nodes.pause, nodes.resume, nodes.stop):
        with pytest.raises(NodesFailed, match="node 1 doesn't run"):
            deed(1)
    with pytest.raises(NodesFailed, match="error 3"):
        nodes.isr(topic)


def test_at_the_end_nothing_is_left_even_of_nodes_that_were_hurt() -> None:
    with three_nodes(purpose="ends") as own:
        processes = [process for _, run in mine() for process in run.processes]
        assert len(processes) == 3
        own.pause(1)
        own.kill(2)
        (folder,) = {Path(process.marker).parents[1] for process in processes}
        assert folder.exists()
    assert not any(process.alive() for process in processes)
    assert not folder.exists()
    for node in own.ids:
        with pytest.raises(ConnectionRefusedError):
            RawConnection(own.address(node))


def test_nodes_that_can_not_start_report_why() -> None:
    with (
        pytest.raises(NodesFailed, match=r"(?s)ended while starting.*no\.such\.Reporter"),
        three_nodes(purpose="broken", settings={"metric.reporters": "no.such.Reporter"}),
    ):
        raise AssertionError("they have started")
    assert not mine("broken")


def mine(purpose: str = "ends") -> list[tuple[Path, node_runs.Run]]:
    return [
        (folder, run)
        for folder, run in node_runs.runs()
        if run.owner == os.getpid() and folder.name.startswith(purpose)
    ]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of this test's own, which has no runs."""
    monkeypatch.setenv("KCLIENT_TEST_CACHE", str(tmp_path))
    yield tmp_path


def test_the_next_run_ends_what_is_left_of_one_that_was_killed(cache: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", ""])
    owner.wait()
    folder = node_runs.home() / "left"
    folder.mkdir(parents=True)
    marker = str(folder / "server.properties")
    process = jvm.launch(
        [sys.executable, "-c", "import time; time.sleep(60)", marker], "", marker, folder / "log"
    )
    stranger = jvm.JavaProcess(os.getpid(), marker)  # the pid was reused
    run = node_runs.Run(owner.pid, "4.3.0", "", (23000,), (process, stranger))
    node_runs.write(folder, run)
    assert node_runs.read(folder) == run
    try:
        directory, ports = node_runs.begin("next", "4.3.0", 2, 0)
        assert not process.alive()
        assert not folder.exists()
        assert [where for where, _ in node_runs.runs()] == [directory]
        assert len(set(ports)) == 2
    finally:
        process.kill()


def test_the_ports_of_nodes_that_are_down_are_not_given_away(cache: Path) -> None:
    _, first = node_runs.begin("one", "4.3.0", 6, 0)
    _, second = node_runs.begin("two", "4.3.0", 6, 0)
    assert not set(first) & set(second)
