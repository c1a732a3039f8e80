"""Run the recipes of docs/consumers.md, arrow.md, metrics.md and others; follow links."""

from __future__ import annotations

import ast
import asyncio
import datetime
import functools
import inspect
import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pytest
import trustme

import kclient
from kclient.testing import Cluster, ErrorCode, run_virtually

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
PAGES = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in FILES}
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)")


def block(page: str, words: str) -> str:
    """The one block of Python on ``page`` with ``words`` in it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    (code,) = [one for one in found if words in one]
    return str(code)


async def execute(code: str, cluster: Cluster, **names: Any) -> dict[str, Any]:
    """Run ``code`` as the body of a coroutine; return its names."""
    code = code.replace('"localhost:9092"', "bootstrap")
    compiled = compile(code, "<docs>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names |= {"asyncio": asyncio, "datetime": datetime, "kclient": kclient, "pyarrow": pyarrow}
    names["bootstrap"] = cluster.bootstrap
    result = eval(compiled, names)
    if inspect.iscoroutine(result):
        await result
    return names


async def filled(cluster: Cluster, topic: str, count: int) -> None:
    """Send ``count`` more records to each of the three partitions of ``topic``."""
    async with kclient.Producer(cluster.bootstrap) as producer:
        for partition in range(3):
            rows = [kclient.Outgoing(b"%d" % one, partition=partition) for one in range(count)]
            await producer.send_many(topic, rows)


@pytest.mark.parametrize(
    ("page", "topic", "words", "exactly"),
    [
        ("consumers.md", "orders", "consumer.seek(partition, since)", True),
        ("consumers.md", "orders", 'group="report"', False),
        ("arrow.md", "flights", "consumer.seek(partition, since)", True),
    ],
)
def test_reading_to_the_end_of_now_stops(page: str, topic: str, words: str, exactly: bool) -> None:
    """Though records come meanwhile, which are dropped unless commits would cover them."""
    read: list[Any] = []

    async def scene() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(topic, partitions=3)
            await filled(cluster, topic, 5)
            end_offsets = kclient.Consumer.end_offsets

            async def then_more(consumer: Any, partitions: Any) -> Any:
                ends = await end_offsets(consumer, partitions)
                await filled(cluster, topic, 5)
                return ends

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kclient.Consumer, "end_offsets", then_more)
                code = block(page, words)
                names = await execute(code, cluster, print=lambda *reported: read.append(reported))
                read.extend(names["table"].to_pylist() if "table" in names else ())

    # Recipes that compute a time read the machine's clock.
    (asyncio.run if exactly else run_virtually)(scene())
    if exactly:
        assert len(read) == 15
    else:
        assert {(part.partition, offset) for part, offset in read} >= {
            (part, offset) for part in range(3) for offset in range(5)
        }


def test_dead_letters_are_sent_back_once_with_their_own_headers() -> None:
    async def handle(record: object) -> None:
        raise ValueError("no amount")

    async def bury(bootstrap: str, producer: kclient.Producer[Any, Any]) -> None:
        async with kclient.Consumer(
            bootstrap, "orders", group="billing", auto_offset_reset="earliest"
        ) as consumer:
            work = asyncio.create_task(
                consumer.run(
                    handle,
                    retries=kclient.Retries(max_attempts=2, backoff=0.1),
                    dead_letter_topic="orders.dead",
                    producer=producer,
                )
            )
            await asyncio.sleep(20)
            await consumer.close(timeout=5.0)
            await work

    async def scene() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("orders", partitions=1)
            cluster.create_topic("orders.dead", partitions=2)
            async with kclient.Producer(cluster.bootstrap) as producer:
                sent = producer.send("orders", b"0 EUR", key=b"k", headers={"via": b"web"})
                await sent
                await bury(cluster.bootstrap, producer)
                code = block("consumers.md", "async def send_back")
                send_back = (await execute(code, cluster))["send_back"]
                for _ in range(2):
                    await send_back(cluster.bootstrap, "orders.dead")
                first, again = cluster.records("orders")
                assert (again.key, again.value, again.headers) == (b"k", b"0 EUR", first.headers)
                await bury(cluster.bootstrap, producer)
            (*_, last) = sorted(
                (
                    *cluster.records("orders.dead", 0),
                    *cluster.records("orders.dead", 1),
                ),
                key=lambda record: record.timestamp,
            )
            failure = kclient.failure_of(last)
            assert failure is not None
            assert (failure.offset, failure.attempts) == (1, 2)  # of what was sent back

    run_virtually(scene())


def test_readiness_shows_a_producer_that_is_stuck() -> None:
    async def scene() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("orders", partitions=1)
            ready = (await execute(block("metrics.md", "def ready"), cluster))["ready"]
            async with (
                kclient.Producer(cluster.bootstrap) as producer,
                kclient.Consumer(
                    cluster.bootstrap, "orders", auto_offset_reset="earliest"
                ) as consumer,
            ):
                await producer.send("orders", b"v")
                await consumer.poll()
                assert ready(producer, consumer)
                with cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=None):
                    delivery = producer.send("orders", b"v")
                    await asyncio.sleep(2)
                    assert producer.health().ok
                    assert not ready(producer, consumer)
                await delivery
                assert ready(producer, consumer)

    run_virtually(scene())


async def committed(cluster: Cluster, topic: str) -> list[bytes | None]:
    """What readers of committed records get, within ten seconds."""
    async with kclient.Consumer(
        cluster.bootstrap,
        topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        polls = [await consumer.poll(timeout=1.0) for _ in range(10)]
    return [record.value for records in polls for record in records]


@pytest.mark.parametrize("version", [1, 2])
def test_the_service_of_the_page_of_transactions_reads_and_writes_once(version: int) -> None:
    async def scene() -> None:
        async with Cluster(brokers=1, transaction_version=version) as cluster:
            cluster.create_topic("flights", partitions=3)
            cluster.create_topic("cancelled")
            await filled(cluster, "flights", 5)
            main = (await execute(block("transactions.md", "async def main"), cluster))["main"]
            for _ in range(2):
                service = asyncio.create_task(main())
                await asyncio.sleep(60.0)
                service.cancel()
                await asyncio.wait([service])
            numbers = sorted(b"%d" % one for one in range(5) for _ in range(3))
            assert sorted(await committed(cluster, "cancelled")) == numbers

    run_virtually(scene())


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_by_hand_are_committed(version: int) -> None:
    async def scene() -> None:
        async with Cluster(brokers=1, transaction_version=version) as cluster:
            cluster.create_topic("orders", partitions=3)
            cluster.create_topic("audited")
            await filled(cluster, "orders", 1)
            by_block = functools.partial(_function, cluster)
            async with (
                kclient.Producer(cluster.bootstrap, transactional_id="audit-1") as producer,
                kclient.Consumer(
                    cluster.bootstrap,
                    "orders",
                    group="audit",
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                ) as consumer,
            ):
                while not any((await consumer.committed(consumer.assignment)).values()):
                    await (await by_block("move"))(consumer, producer)
                await (await by_block("move_by_hand"))(producer)
                prepared = await (await by_block("write"))(producer)
            before = await committed(cluster, "audited")
            assert sorted({*before}) == [b"0", b"value"]
            await (await by_block("decide"))(prepared)
            assert await committed(cluster, "audited") == [*before, b"value"]

    run_virtually(scene())


async def _function(cluster: Cluster, name: str) -> Any:
    """The function of that name on the page of transactions."""
    return (await execute(block("transactions.md", f"async def {name}("), cluster))[name]


def headings(page: str) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.M | re.S)
    found = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in found}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for target, anchor in LINK.findall(PAGES[page]):
        file = (folder / target).resolve() if target else ROOT / page
        assert file.exists(), f"there is no {target}"
        name = str(file.relative_to(ROOT))
        assert not anchor or anchor in headings(name), f"{name} has no #{anchor}"


def test_each_page_of_the_docs_is_linked_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall(PAGES["README.md"])}
    behind = {
        f"docs/{target}" for name in linked & {*PAGES} for target, _ in LINK.findall(PAGES[name])
    }
    pages = {page for page in PAGES if page.startswith("docs/")}
    assert pages <= linked | behind


def test_security_values_are_made_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block("security.md", "sasl_scram"), names)
    assert names["scram"].protocol == "SASL_SSL"
    assert names["tls"].protocol == "SSL"

    async def my_identity_provider() -> dict[str, Any]:
        return {"access_token": "a.b.c", "expires_at": 1.0}

    names = {"my_identity_provider": my_identity_provider}
    exec(block("security.md", "fetch_token"), names)
    assert asyncio.run(names["fetch_token"]()).expires_at == 1.0
