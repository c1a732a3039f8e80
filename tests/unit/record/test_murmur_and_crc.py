"""The hash that places keys and the checksum of batches, against values of others."""

from __future__ import annotations

import random
import sys
import types

import pytest

from kclient.record import crc32c, layout
from kclient.record.implementation import Implementation, load
from tests.unit.record.conftest import BUILDS

# From Apache Kafka's own UtilsTest.testMurmur2.
JAVA = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize("partitions", [1, 3, 10, 12, 2**31])
@pytest.mark.parametrize(("key", "hashed"), JAVA)
def test_keys_go_where_java_puts_them(
    build: Implementation, key: bytes, hashed: int, partitions: int
) -> None:
    assert build.partition_of_key(key, partitions) == (hashed & 0x7FFFFFFF) % partitions


def test_keys_go_to_the_same_partitions_in_both_builds() -> None:
    source = random.Random(3)
    for size in (*range(20), 100, 1000, 10_000):
        key = source.randbytes(size)
        assert len({load(name).partition_of_key(key, 2**31) for name in BUILDS}) == 1


def test_an_empty_key_is_a_key(build: Implementation) -> None:
    assert 0 <= build.partition_of_key(b"", 7) < 7


@pytest.mark.parametrize(
    ("data", "crc"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
def test_crc32c_is_castagnoli(data: bytes, crc: int) -> None:
    # RFC 3720, B.4.
    assert crc32c(data) == crc
    assert crc32c(memoryview(data)[len(data) // 2 :], crc32c(data[: len(data) // 2])) == crc


@pytest.mark.parametrize("there", ["nothing", "no C module inside", "the package"])
def test_the_sum_comes_from_the_package_however_it_is_loaded(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "crc32c"]:
        monkeypatch.delitem(sys.modules, name)
    if there == "the package":
        import crc32c as package

        assert layout._package() is package
    if there == "no C module inside":
        nothing = types.SimpleNamespace(find_spec=lambda *_: None)
        monkeypatch.setattr(layout, "PathFinder", nothing)
    assert layout._package().crc32c(b"123456789") == 0xE3069283
    assert ("crc32c" in sys.modules) == (there != "nothing")
