"""Memory of settled batches is reused for new ones, never while a view of it exists."""

from __future__ import annotations

import random

import pytest

from kclient.record import IMPLEMENTATION

from .model_broker import ModelBroker
from .rig import Rig
from .serving import queue_of

SIZE = 4096
MIB = 1024 * 1024
compiled = IMPLEMENTATION == "cython"


def fill(rig: Rig, number: int, partition: int = 0) -> list[bytes]:
    """Send slightly more than a full batch of values."""
    sent = [b"%06d-%03d-%s" % (number, i, b"v" * 100) for i in range(SIZE // 110)]
    for value in sent:
        rig.send(value, partition=partition)
    return sent


def served(rig: Rig, broker: ModelBroker, look: float = 0.0) -> list[memoryview]:
    """Respond to all requests; return views of the records of a share ``look`` of the batches."""
    looked_at = []
    rig.step()
    while rig.network.pending:
        for queue in rig.accumulator.busy:
            looked_at += [
                memoryview(batch.encode()[2])
                for batch in queue.outstanding
                if rig.core.rng.random() < look
            ]
        sent = rig.take_request()
        rig.answer(sent, broker.produce(sent.message()))
        rig.step()
    return looked_at


def test_new_batches_get_the_memory_of_those_that_were_acknowledged() -> None:
    rig, broker = Rig(batch_size=SIZE, linger=1.0), ModelBroker()
    used: list[bytearray] = []
    for number in range(20):
        fill(rig, number)
        served(rig, broker)
        used += [memory for memory in rig.accumulator._spare if id(memory) not in map(id, used)]
    assert 0 < len(used) < 5 if compiled else not used


def test_a_partition_with_few_records_does_not_get_any() -> None:
    rig, broker = Rig(2, batch_size=SIZE), ModelBroker()
    for number in range(2):
        fill(rig, number)
        rig.send(b"one", partition=1)
        served(rig, broker)
    before = list(rig.accumulator._spare)
    assert bool(before) == compiled
    rig.send(b"one", partition=1)
    assert rig.accumulator._spare == before


@pytest.mark.parametrize("seed", range(5))
def test_a_view_never_shows_later_writes(seed: int) -> None:
    rng = random.Random(seed)
    rig, broker = Rig(3, batch_size=SIZE, linger=1.0), ModelBroker()
    expected: dict[int, list[bytes]] = {}
    looked_at: list[tuple[memoryview, bytes]] = []
    for number in range(40):
        partition = rng.randrange(3)
        expected.setdefault(partition, []).extend(fill(rig, number, partition))
        looked_at += [(body, bytes(body)) for body in served(rig, broker, 0.3)]
    rig.pass_time(1.0)
    served(rig, broker)
    assert len(looked_at) > 5
    assert all(body == before for body, before in looked_at)
    for partition, wanted in expected.items():
        assert broker.log("t", partition).values == wanted


def test_memory_of_records_larger_than_a_batch_is_not_kept() -> None:
    rig, broker = Rig(batch_size=SIZE), ModelBroker()
    for _ in range(5):
        rig.send(b"v" * 10 * SIZE)
        served(rig, broker)
    assert rig.accumulator._spare == []


@pytest.mark.parametrize("compressing", [False, True])
def test_memory_that_a_thread_is_about_to_compress_is_not_kept(compressing: bool) -> None:
    rig = Rig(batch_size=SIZE, linger=1.0)
    fill(rig, 1)
    batch = queue_of(rig).sealed[0]
    batch.compressing = compressing
    rig.accumulator.release(batch)
    assert len(rig.accumulator._spare) == (1 if compiled and not compressing else 0)


def test_no_memory_is_kept_beyond_the_end() -> None:
    rig, broker = Rig(batch_size=SIZE, linger=1.0), ModelBroker()
    for number in range(3):
        fill(rig, number)
    served(rig, broker)
    assert bool(rig.accumulator._spare) == compiled
    rig.accumulator.drop_spares()
    fill(rig, 4)
    rig.pass_time(1.0)
    served(rig, broker)
    assert rig.accumulator._spare == []


def test_what_is_kept_is_never_more_than_four_mebibytes() -> None:
    size = 512 * 1024
    rig = Rig(16, batch_size=size, buffer_memory=128 * MIB, linger=1.0)
    for _ in range(6):
        for partition in range(16):
            rig.send(b"v" * (size // 6), partition=partition)
    rig.pass_time(1.0)
    served(rig, ModelBroker())
    kept = sum(map(len, rig.accumulator._spare))
    assert 3 * MIB < kept <= 4 * MIB if compiled else kept == 0


def test_what_is_kept_is_a_small_share_of_the_memory() -> None:
    memory = 64 * SIZE
    rig, broker = Rig(32, batch_size=SIZE, buffer_memory=memory, linger=1.0), ModelBroker()
    for number in range(3):
        for partition in range(32):
            fill(rig, number, partition)
        rig.pass_time(1.0)
        served(rig, broker)
        spare = rig.accumulator._spare
        assert sum(map(len, spare)) <= memory // 8
        assert len(spare) == (8 if compiled else 0)
    assert queue_of(rig).idle
