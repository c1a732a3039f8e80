"""A broker's release, guessed from the versions that it speaks."""

from __future__ import annotations

import pytest

from tests.support.class_path import parse_version
from tests.support.raw_admin import DESCRIBE_CLUSTER, FETCH, guess_release, split_address


@pytest.mark.parametrize(
    ("spoken", "release"),
    [
        ({FETCH: (0, 6)}, (1, 0, 0)),
        ({FETCH: (0, 12)}, (2, 7, 0)),
        ({FETCH: (0, 12), DESCRIBE_CLUSTER: (0, 0)}, (2, 8, 0)),
        ({FETCH: (0, 17), DESCRIBE_CLUSTER: (0, 1)}, (3, 9, 0)),
        ({FETCH: (4, 17), DESCRIBE_CLUSTER: (0, 2)}, (4, 0, 0)),
        ({FETCH: (4, 18), DESCRIBE_CLUSTER: (0, 2)}, (4, 1, 0)),
    ],
)
def test_the_release_is_guessed_from_the_spoken_versions(
    spoken: dict[int, tuple[int, int]], release: tuple[int, int, int]
) -> None:
    assert guess_release(spoken) == release


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("[::1]:9092,other:9093", ("::1", 9092)),
    ],
)
def test_an_address_is_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


def test_a_version_has_three_numbers() -> None:
    assert parse_version("3.9.1") == (3, 9, 1)
    for wrong in ("4.3", "4.3.0-rc1", "latest", ""):
        with pytest.raises(ValueError, match="not a version"):
            parse_version(wrong)
