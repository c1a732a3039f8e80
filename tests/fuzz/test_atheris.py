"""The entries for coverage-guided runs work, without atheris: over their corpus, and cuts of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.fuzz import atheris_batches, atheris_frames
from tests.fuzz.coverage_guided import fill

ENTRIES = [
    pytest.param(atheris_frames.one_input, atheris_frames.corpus, id="frames"),
    pytest.param(atheris_batches.one_input, atheris_batches.corpus, id="batches"),
]


@pytest.mark.parametrize(("one_input", "corpus"), ENTRIES)
def test_an_entry_reads_its_corpus_and_what_comes_of_it(
    one_input: Callable[[bytes], None], corpus: Callable[[], Iterable[bytes]]
) -> None:
    source = random.Random(3)
    one_input(b"")
    for data in corpus():
        one_input(data)
        one_input(data[: source.randrange(len(data))])
        flipped = bytearray(data)
        flipped[source.randrange(len(data))] ^= 1 << source.randrange(8)
        one_input(bytes(flipped))


def test_a_directory_is_filled_once(tmp_path: Path) -> None:
    fill(tmp_path / "corpus", [b"a", b"b"])
    fill(tmp_path / "corpus", [b"c"])
    files = sorted((tmp_path / "corpus").iterdir())
    assert [file.read_bytes() for file in files] == [b"a", b"b"]
