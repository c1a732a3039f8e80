"""Run what docs/migrating.md shows; its tables have every method of the other clients.

Programs (blocks whose first line names a file) run in processes of their own, against a cluster
over loopback: those before and after must print the same. All other code runs on virtual time.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import inspect
import itertools
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiokafka.admin
import aiokafka.partitioner
import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.aio
import pytest
from aiohttp.test_utils import TestClient, TestServer

import kclient
from kclient.partitioners import ConsistentRandom
from kclient.testing import Cluster, ErrorCode, ThreadedCluster, run_virtually
from tests.interop.peers.kafka_python_peer import kafka
from tools.migration_table import page

aiokafka_partitioner = aiokafka.partitioner.DefaultPartitioner()
kafka_murmur2 = kafka.partitioner.default.murmur2

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
PROGRAM = re.compile(r"# (\w+)\.py, with ([\w-]+)\n")
PROGRAMS = [block for block in BLOCKS if PROGRAM.match(block)]
SNIPPETS = [block for block in BLOCKS if not PROGRAM.match(block)]
OTHERS = ("aiokafka", "kafka-python", "confluent-kafka")
CODE = re.compile(r"`((?:await \w+\.|async for |(?:producer|consumer|admin|record)\.|\()[^`]+)`")
METHODS: dict[str, list[type]] = {
    "AIOKafkaProducer": [aiokafka.AIOKafkaProducer],
    "AIOKafkaConsumer": [aiokafka.AIOKafkaConsumer],
    "AIOKafkaAdminClient": [aiokafka.admin.AIOKafkaAdminClient],
    "KafkaProducer": [kafka.KafkaProducer],
    "KafkaConsumer": [kafka.KafkaConsumer],
    "KafkaAdminClient": [kafka.KafkaAdminClient],
    "Producer and AIOProducer": [
        confluent_kafka.Producer,
        confluent_kafka.SerializingProducer,
        confluent_kafka.aio.AIOProducer,
    ],
    "Consumer and AIOConsumer": [
        confluent_kafka.Consumer,
        confluent_kafka.DeserializingConsumer,
        confluent_kafka.aio.AIOConsumer,
    ],
    "AdminClient": [confluent_kafka.admin.AdminClient],
}
"""The classes of each table of methods, by its heading."""


def section(heading: str) -> str:
    """The text below a heading, up to the next one."""
    (found,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.M | re.S)
    return str(found)


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in ``text``, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


# The tables of methods ---------------------------------------------------------------------------


@pytest.mark.parametrize("heading", METHODS)
def test_every_public_method_has_a_row(heading: str) -> None:
    named = [name for row in rows(section(heading)) for name in re.findall(r"`(\w+)`", row[0])]
    public = {
        name
        for owner in METHODS[heading]
        for name in dir(owner)
        if not name.startswith("_") and callable(getattr(owner, name))
    }
    assert sorted(named) == sorted(public)


@pytest.mark.parametrize("heading", METHODS)
def test_each_row_names_a_counterpart_or_the_reason_for_none(heading: str) -> None:
    for row in rows(section(heading)):
        assert len(row) == 3, row
        assert re.match(r"`[^`]+`|not yet$|not needed: .", row[1]), row


# The programs ------------------------------------------------------------------------------------


def run(program: str, cluster: Any) -> str:
    """The output of a program of the page, without its log."""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("localhost:9092", cluster.bootstrap)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pair(client: str, name: str) -> tuple[str, str]:
    """The program of that name with ``client``, and the one below it, with kclient."""
    for before, after in itertools.pairwise(PROGRAMS):
        if before.startswith(f"# {name}.py, with {client}\n"):
            assert after.startswith(f"# {name}.py, with kclient\n")
            return before, after
    raise AssertionError(f"no program {name}.py with {client}")


def threaded() -> ThreadedCluster:
    return ThreadedCluster(Cluster(brokers=1))


@pytest.mark.parametrize("client", OTHERS)
def test_programs_print_the_same_before_and_after(client: str) -> None:
    printed: list[list[str]] = []
    for side in (0, 1):
        with threaded() as cluster:
            cluster.create_topic("orders", partitions=3)
            service, worker = (pair(client, name)[side] for name in ("service", "worker"))
            printed.append([run(service, cluster), run(worker, cluster)])
    before, after = printed
    assert after == before
    assert "stored at offset 3\n" in after[0]
    assert "order 4 of " in after[1]


async def committed(bootstrap: str) -> int:
    """How many records of ``orders`` the group of the programs has committed."""
    partitions = [kclient.TopicPartition("orders", index) for index in range(3)]
    async with kclient.Consumer(bootstrap, group="billing") as consumer:
        offsets = await consumer.committed(partitions)
    return sum(found.offset for found in offsets.values() if found)


@pytest.mark.parametrize("client", OTHERS)
@pytest.mark.parametrize("first", [0, 1], ids=["to kclient", "from kclient"])
def test_a_group_goes_on_where_the_other_client_committed(client: str, first: int) -> None:
    service, worker = pair(client, "service"), pair(client, "worker")
    with threaded() as cluster:
        cluster.create_topic("orders", partitions=3)
        run(service[first], cluster)
        seen = run(worker[first], cluster)
        run(service[1], cluster)
        assert run(worker[1 - first], cluster) == seen  # the four records of the second run
        assert asyncio.run(committed(cluster.bootstrap)) == 8


@pytest.mark.parametrize("side", [0, 1], ids=["before", "after"])
async def test_a_pump_copies_with_headers_until_it_is_stopped(side: int) -> None:
    async with Cluster(brokers=1) as cluster:
        for topic in ("orders", "copies"):
            cluster.create_topic(topic, partitions=1)
        async with kclient.Producer(cluster.bootstrap) as producer:
            for _ in range(2):
                await producer.send("orders", b"EWR-IAH", key=b"N14228", headers={"via": b"web"})
        code = pair("confluent-kafka", "pump")[side].replace("localhost:9092", cluster.bootstrap)
        pump = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code), stdout=asyncio.subprocess.PIPE
        )
        assert pump.stdout is not None
        assert [await pump.stdout.readline() for _ in range(2)] == [b"copied 0\n", b"copied 1\n"]
        pump.terminate()
        assert await pump.stdout.read() == b"stopped\n"
        assert await pump.wait() == 0
        copies = cluster.records("copies")
    assert [(copy.key, copy.value) for copy in copies] == [(b"N14228", b"EWR-IAH")] * 2
    assert [copy.headers for copy in copies] == [(("via", b"web"), ("from", b"orders"))] * 2


def test_code_without_a_loop_sends() -> None:
    (program,) = [block for block in PROGRAMS if block.startswith("# blocking.py")]
    with threaded() as cluster:
        cluster.create_topic("orders", partitions=1)
        assert run(program, cluster) == "stored at offset 0\n"


def test_all_programs_are_run() -> None:
    assert len(PROGRAMS) == 2 * 2 * len(OTHERS) + 2 + 1


# All other code ----------------------------------------------------------------------------------


def play(code: str) -> None:
    """Run ``code`` as the body of a coroutine, with the names that the page takes for granted."""

    async def scene() -> None:
        async with Cluster(brokers=1) as cluster:
            for topic in ("orders", "old"):
                cluster.create_topic(topic, partitions=3)
            await execute(code, cluster)

    run_virtually(scene())


async def execute(code: str, cluster: Cluster) -> None:
    by_hand = "assign(" in code or ".commit({" in code
    partition = kclient.TopicPartition("orders", 0)
    topics = () if by_hand else ("orders",)
    producer = kclient.Producer(cluster.bootstrap)
    consumer: kclient.Consumer[Any, Any] = kclient.Consumer(
        cluster.bootstrap, *topics, group="billing", auto_offset_reset="earliest"
    )
    admin = kclient.Admin(cluster.bootstrap)
    names: dict[str, Any] = {name: getattr(kclient, name) for name in kclient.__all__}
    names |= {"kclient": kclient, "asyncio": asyncio, "cluster": cluster, "__name__": "page"}
    names |= {
        "partition": partition,
        "partitions": [partition],
        "assigned": lambda partitions: None,
        "revoked": lambda partitions: None,
    }
    names |= {"producer": producer, "consumer": consumer, "admin": admin}
    if ".start()" in code:
        await evaluate(code, names)
        return
    async with producer, consumer, admin:
        for index in (0, 1, 2, 0, 1, 2):
            await producer.send("orders", b"EWR-IAH", partition=index)
        if by_hand:
            consumer.assign([partition])
        names["records"] = await consumer.poll(3, timeout=10.0)
        names["record"] = names["records"][-1]
        await evaluate(code, names)


async def evaluate(code: str, names: dict[str, Any]) -> None:
    compiled = compile(code, "<docs/migrating.md>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)
    if inspect.iscoroutine(result):
        await result


def code_of(row: list[str]) -> str:
    """The lines of code of a row, without those that leave something out."""
    return "\n".join(code for code in CODE.findall(" ".join(row)) if "..." not in code)


CELLS = sorted({code for row in rows(PAGE) if (code := code_of(row))})


WITHOUT_SECURITY = {
    "acls": kclient.SecurityDisabled,
    "describe_user_scram": kclient.ResourceNotFound,
}
"""What a cluster without authorizer and users has for those that administer them."""


@pytest.mark.parametrize("code", CELLS)
def test_code_in_tables_runs(code: str) -> None:
    refused = next((error for name, error in WITHOUT_SECURITY.items() if name in code), None)
    with pytest.raises(refused) if refused is not None else contextlib.nullcontext():
        play(code)


@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: " ".join(block.split())[:60])
def test_blocks_run(block: str) -> None:
    play(block)


async def test_the_web_service_stores_what_is_posted() -> None:
    (block,) = [block for block in SNIPPETS if "web.Application" in block]
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=1)
        names: dict[str, Any] = {"kclient": kclient, "__name__": "page"}
        await evaluate(block.replace("localhost:9092", cluster.bootstrap), names)
        async with TestClient(TestServer(names["app"])) as client:
            response = await client.post("/orders", data=b"EWR-IAH")
            assert await response.json() == {"partition": 0, "offset": 0}
            response = await client.post("/orders", data=bytes(1024**2 - 1))
            assert response.status == 400
            assert "max_request_size" in await response.text()
            cluster.faults.error("Produce", ErrorCode.MESSAGE_TOO_LARGE, times=None)
            assert (await client.post("/orders", data=b"EWR-IAH")).status == 400
            cluster.faults.clear()
            await cluster.crash(1)
            assert (await client.post("/orders", data=b"EWR-IAH")).status == 503
            await cluster.restart(1)
        assert [record.value for record in cluster.records("orders")] == [b"EWR-IAH"]


def test_the_page_is_read() -> None:
    assert len(CELLS) > 60
    assert len(SNIPPETS) >= 4


def test_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", PAGE, flags=re.M | re.S), re.M)
    places = {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}
    assert {*re.findall(r"\]\(#([^)]*)\)", PAGE)} <= places


# Changing over -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def waiting_worker(client: str, cluster: Cluster, left_out: str) -> AsyncIterator[None]:
    """A member of the group of the page's workers, for as long as the block runs."""
    code = pair(client, "worker")[0].replace("localhost:9092", cluster.bootstrap)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-W", "ignore", "-c", code.replace(left_out, "")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    try:
        assert await worker.stdout.readline() == b"assigned 3\n"
        yield
    finally:
        worker.kill()
        await worker.communicate()


@pytest.mark.parametrize(
    ("client", "left_out", "settings"),
    [
        ("aiokafka", "", {"partition_assignment_strategy": "roundrobin"}),
        ("kafka-python", "", {}),
        ("confluent-kafka", "", {}),
        ("confluent-kafka", '"partition.assignment.strategy": "cooperative-sticky",', {}),
    ],
)
async def test_a_group_of_the_other_client_takes_a_member(
    client: str, left_out: str, settings: dict[str, Any]
) -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        async with (
            waiting_worker(client, cluster, left_out),
            kclient.Consumer(cluster.bootstrap, "orders", group="billing", **settings) as consumer,
        ):
            while not consumer.assignment:
                await consumer.poll(timeout=0.1)
            assert 1 <= len(consumer.assignment) <= 2


async def test_a_group_of_aiokafkas_default_assignor_refuses_a_member_without_it() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        async with (
            waiting_worker("aiokafka", cluster, ""),
            kclient.Consumer(cluster.bootstrap, "orders", group="billing") as consumer,
        ):
            with pytest.raises(kclient.errors.InconsistentGroupProtocol):
                await consumer.poll(timeout=None)


# What differs on purpose --------------------------------------------------------------------------

KEYS = [b"customer-%d" % number for number in range(50)]


async def places_of(bootstrap: str, partitioner: Any = None) -> dict[bytes, int]:
    """The partition of each key by kclient."""
    async with kclient.Producer(bootstrap, partitioner=partitioner) as producer:
        return {key: (await producer.send("orders", b"", key=key)).partition for key in KEYS}


def places_of_confluent(bootstrap: str, settings: dict[str, Any]) -> dict[bytes, int]:
    places: dict[bytes, int] = {}

    def settled(error: object, message: Any) -> None:
        assert error is None
        places[message.key()] = message.partition()

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, **settings}
    )
    for key in KEYS:
        producer.produce("orders", b"", key=key, on_delivery=settled)
    assert producer.flush(30) == 0
    return places


def test_keys_land_where_the_page_states() -> None:
    with threaded() as cluster:
        cluster.create_topic("orders", partitions=6)
        ours = asyncio.run(places_of(cluster.bootstrap))
        theirs = places_of_confluent(cluster.bootstrap, {})
        assert places_of_confluent(cluster.bootstrap, {"partitioner": "murmur2_random"}) == ours
        assert asyncio.run(places_of(cluster.bootstrap, ConsistentRandom())) == theirs
    six = list(range(6))
    assert ours == {key: aiokafka_partitioner(key, six, six) for key in KEYS}
    assert ours == {key: (kafka_murmur2(key) & 0x7FFFFFFF) % 6 for key in KEYS}
    assert sum(ours[key] == theirs[key] for key in KEYS) < len(KEYS) / 4


# Settings ----------------------------------------------------------------------------------------


def test_the_settings_are_those_of_the_table_in_the_code() -> None:
    assert page() == PAGE, "run python -m tools.migration_table"


def shown(name: str, value: Any) -> str:
    """A default of another client as the page writes it."""
    if name == "partition_assignment_strategy":
        return ", ".join(assignor.name for assignor in value)
    if name == "acks":
        return "all" if value == -1 else str(value)
    return f"{value / 1000:g}" if name.endswith("_ms") else str(value)


def test_the_defaults_are_those_of_the_clients() -> None:
    theirs_by_ours = {"idempotence": "enable_idempotence", "allow_auto_create_topics": ""} | {
        name: f"{name}_ms"
        for name in ("linger", "delivery_timeout", "request_timeout", "session_timeout")
    }
    aiokafkas = {
        name: parameter.default
        for client in (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer)
        for name, parameter in inspect.signature(client).parameters.items()
    } | {"acks": 1}  # a marker, which means 1 without idempotence
    aiokafkas["batch_size"] = aiokafkas["max_batch_size"]
    aiokafkas["delivery_timeout_ms"] = aiokafkas["request_timeout_ms"]
    kafka_pythons = kafka.KafkaConsumer.DEFAULT_CONFIG | kafka.KafkaProducer.DEFAULT_CONFIG
    ours = {**vars_of(kclient.ConsumerConfig()), **vars_of(kclient.ProducerConfig())}
    table = rows(PAGE[PAGE.index("Defaults that differ") : PAGE.index("<!-- Made by")])
    assert len(table) == 10
    for cell, of_aiokafka, of_kafka_python, _, of_kclient in table:
        name = cell.strip("`")
        value = ours[name]
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        assert of_kclient == text.removesuffix(".0")
        if theirs := theirs_by_ours.get(name, name):
            assert of_aiokafka == shown(theirs, aiokafkas[theirs]), name
            assert of_kafka_python == shown(theirs, kafka_pythons[theirs]), name


def vars_of(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
