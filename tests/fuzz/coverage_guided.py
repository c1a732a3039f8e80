"""Runs an entry of the fuzzer under atheris (libFuzzer): used by the two ``atheris_*`` modules.

atheris is no dependency of this project: ``pip install atheris`` where long runs are wanted. The
entries themselves run in CI without it, over their corpus.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

INSTRUMENTED = ["kclient.protocol", "kclient.network", "kclient.record", "kclient.consumer"]


def fuzz(make: Callable[[], Callable[[bytes], None]], corpus: Iterable[bytes]) -> None:
    """Fuzz until something breaks or libFuzzer reaches a limit; does not return.

    Args:
        make: Imports what is to be fuzzed, which is instrumented by that, and returns the entry.
        corpus: Inputs to begin with; written to the directory that the command names, if empty.
    """
    import atheris  # type: ignore[import-not-found,unused-ignore]

    with atheris.instrument_imports(include=INSTRUMENTED):
        one_input = make()
    directories = [Path(one) for one in sys.argv[1:] if not one.startswith("-")]
    for directory in directories[:1]:
        fill(directory, corpus)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


def fill(directory: Path, corpus: Iterable[bytes]) -> None:
    """Write the corpus where there is none yet."""
    directory.mkdir(parents=True, exist_ok=True)
    if not any(directory.iterdir()):
        for number, data in enumerate(corpus):
            (directory / f"seed-{number:04}").write_bytes(data)
