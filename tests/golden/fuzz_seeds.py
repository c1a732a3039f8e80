"""Writes ``tests/fuzz/goldens.txt``: one response of each API and version, made by Kafka's classes.

Run as ``python -m tests.golden.fuzz_seeds``; ``test_fuzz_seeds`` checks that the file is what this
makes. The fuzzer takes its seeds from there, so that it needs no Java.
"""

from __future__ import annotations

import base64
from pathlib import Path

from kclient.protocol import api_versions
from tests.fuzz.shape import parse
from tests.golden.kafka_side import ask_either, java_class

FILE = Path(__file__).parents[1] / "fuzz" / "goldens.txt"
CANDIDATES = 8
LARGEST_BYTES = 700


def listing() -> str:
    """The content of the file: API key, version and bytes, a line each."""
    wanted = [
        (api.key, version)
        for api in api_versions.ALL
        for version in range(api.min_version, api.max_version + 1)
    ]
    questions = [
        f"make\t{java_class(api_versions.request_class(key).RESPONSE)}\t{version}\t{seed}"
        for key, version in wanted
        for seed in range(CANDIDATES)
    ]
    answers = [answer.data for answer in ask_either(questions)]
    lines = []
    for number, (key, version) in enumerate(wanted):
        found = answers[number * CANDIDATES : (number + 1) * CANDIDATES]
        lines.append(f"{key} {version} {base64.b64encode(_fullest(key, version, found)).decode()}")
    return "".join(f"{line}\n" for line in lines)


def _fullest(key: int, version: int, found: list[bytes]) -> bytes:
    """The one with the most parts of those that are not too large, else the smallest."""
    small = [data for data in found if len(data) <= LARGEST_BYTES]
    if not small:
        return min(found, key=len)
    response = api_versions.request_class(key).RESPONSE
    return max(small, key=lambda data: sum(1 for _ in parse(response, data, version).walk()))


if __name__ == "__main__":
    FILE.write_text(listing())
