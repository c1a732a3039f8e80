"""A codec without its package, or with a broken one: an error of the installation, not of data."""

from __future__ import annotations

import asyncio
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

import kclient
from kclient.errors import CodecUnavailable, CorruptRecord, KafkaError
from kclient.testing import Cluster

CODECS = [
    ("lz4", "lz4.frame", "lz4"),
    ("snappy", "snappy", "python-snappy"),
    ("zstd", "zstandard", "zstandard"),
]
PAIR = [kclient.TopicPartition("t", 0), kclient.TopicPartition("t", 1)]


class BrokenLibrary(importlib.abc.MetaPathFinder):
    """A package that is installed, and whose shared library doesn't load."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == self.module:
            raise OSError("liblz4.so.1: cannot open shared object file")
        return None


def break_codec(patch: pytest.MonkeyPatch, module: str, how: str) -> None:
    if how == "missing":
        patch.setitem(sys.modules, module, None)
    else:
        patch.delitem(sys.modules, module, raising=False)
        patch.setattr(sys, "meta_path", [BrokenLibrary(module), *sys.meta_path])


async def written(cluster: Cluster, codec: str, count: int) -> None:
    """Plain records in partition 1 and, in between, compressed ones in both."""
    cluster.create_topic("t", partitions=2)
    async with kclient.Producer(cluster.bootstrap) as plain:
        await plain.send("t", b"plain", partition=1)
        await plain.send("t", b"plain", partition=0)
    async with kclient.Producer(cluster.bootstrap, compression=codec, linger=1.0) as producer:
        for _ in range(count):
            producer.enqueue_nowait("t", b"packed " * 100, partition=0)
        await producer.flush()


async def taken(consumer: Any, how: str) -> list[int]:
    """Partitions of the records of one call."""
    if how == "columns":
        return list((await consumer.poll_arrow(timeout=1.0)).column("partition").to_pylist())
    if how == "loop":
        async with asyncio.timeout(1.0):
            return [(await anext(aiter(consumer))).partition]
    return [record.partition for record in await consumer.poll(timeout=1.0)]


@pytest.mark.parametrize("reading", ["poll", "loop", "columns"])
@pytest.mark.parametrize("how", ["missing", "broken"])
@pytest.mark.parametrize(("codec", "module", "package"), CODECS)
@pytest.mark.parametrize("count", [3, 5000])
async def test_a_codec_that_is_not_there_names_the_installation_and_moves_nothing(
    monkeypatch: pytest.MonkeyPatch,
    codec: str,
    module: str,
    package: str,
    how: str,
    reading: str,
    count: int,
) -> None:
    async with Cluster(1) as cluster:
        await written(cluster, codec, count)
        with monkeypatch.context() as patch:
            break_codec(patch, module, how)
            async with kclient.Consumer(
                cluster.bootstrap, "t", auto_offset_reset="earliest"
            ) as consumer:
                seen, errors = [], []
                while len(errors) < 3:
                    try:
                        seen += await taken(consumer, reading)
                    except KafkaError as error:
                        errors.append(error)
                assert sorted(seen) == [0, 1]
                for error in errors:
                    assert isinstance(error, CodecUnavailable)
                    assert not isinstance(error, CorruptRecord)
                    assert error.fatal
                    assert not error.retriable
                    assert error.topic_partition == PAIR[0]
                    text = str(error)
                    assert f"{codec} needs the package {package}" in text
                    assert "pip install" in text
                    assert "seek" not in text
                    assert ("cannot open shared object" in text) == (how == "broken")
                assert consumer.positions() == {PAIR[0]: 1, PAIR[1]: 1}
                assert consumer.metrics().get("consumer.corrupt_batches", 0) == 0
                monkeypatch.undo()
                patch.undo()  # it was installed meanwhile
                packed = 0
                async with asyncio.timeout(60.0):
                    while packed < count:
                        try:
                            packed += len(await consumer.poll(timeout=1.0))
                        except CodecUnavailable:
                            continue


async def test_handlers_end_with_it_and_nothing_is_committed_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster(1) as cluster:
        await written(cluster, "lz4", 3)
        monkeypatch.setitem(sys.modules, "lz4.frame", None)
        async with kclient.Consumer(
            cluster.bootstrap, "t", group="g", auto_offset_reset="earliest"
        ) as consumer:

            async def handler(record: Any) -> None:
                return None

            with pytest.raises(CodecUnavailable, match="pip install"):
                await consumer.run(handler)
            found = await consumer.committed(PAIR)
            assert {one: at.offset for one, at in found.items() if at is not None}[PAIR[0]] == 1
