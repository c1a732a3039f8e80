"""Which image is used: the one that is wanted if it can be had, else one that stands in for it."""

from __future__ import annotations

from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from tests.docker.container import DEFAULT_IMAGE, FoundImage, find_image, version_of

NO_REGISTRY = APIError("lookup of the registry failed: no such host")


class Engine:
    """An engine with some images, before a registry with some others."""

    def __init__(self, here: set[str], there: set[str], error: Exception = NO_REGISTRY) -> None:
        self.images = self
        self.here, self.there, self.error = here, there, error
        self.pulled: list[str] = []

    def get(self, name: str) -> None:
        if name not in self.here:
            raise ImageNotFound(name)

    def pull(self, name: str) -> None:
        self.pulled.append(name)
        if name not in self.there:
            raise self.error


def find(engine: Any, wanted: str) -> tuple[FoundImage, list[str]]:
    """What is found, and which versions had to be built for it."""
    built: list[str] = []

    def build(version: str) -> str:
        built.append(version)
        return f"kclient-test/kafka:{version}"

    return find_image(engine, wanted, build), built


def test_an_image_that_is_here_is_used_without_a_registry() -> None:
    engine = Engine({"apache/kafka:4.3.0"}, set())
    assert find(engine, "apache/kafka:4.3.0") == (FoundImage("apache/kafka:4.3.0"), [])
    assert not engine.pulled


def test_an_image_that_a_registry_has_is_fetched() -> None:
    engine = Engine(set(), {"apache/kafka:4.3.0"})
    assert find(engine, "apache/kafka:4.3.0") == (FoundImage("apache/kafka:4.3.0"), [])


@pytest.mark.parametrize("error", [NO_REGISTRY, ImageNotFound("manifest unknown"), OSError("cut")])
def test_the_official_image_is_replaced_where_it_can_not_be_had(error: Exception) -> None:
    found, built = find(Engine(set(), set(), error), DEFAULT_IMAGE)
    assert found.name == "kclient-test/kafka:4.3.0"
    assert built == ["4.3.0"]
    assert found.instead_of.startswith(f"{DEFAULT_IMAGE} is neither here nor")
    assert str(error) in found.instead_of
    assert str(error) in str(found)


def test_our_own_image_is_never_looked_for_in_a_registry() -> None:
    engine = Engine(set(), set())
    found, built = find(engine, "kclient-test/kafka:3.9.1")
    assert (found, built) == (FoundImage("kclient-test/kafka:3.9.1"), ["3.9.1"])
    assert not engine.pulled


@pytest.mark.parametrize("wanted", ["other/kafka:4.3.0", "apache/kafka:latest", "apache/kafka"])
def test_an_image_that_nothing_stands_in_for_is_an_error(wanted: str) -> None:
    with pytest.raises(RuntimeError, match=rf"{wanted} is neither here nor .*no such host"):
        find(Engine(set(), set()), wanted)


def test_a_stand_in_that_can_not_be_built_is_an_error_that_names_both() -> None:
    def build(version: str) -> str:
        raise RuntimeError(f"no jars of {version}")

    engine: Any = Engine(set(), set())
    with pytest.raises(RuntimeError, match=r"no such host.*can't be built: no jars of 4\.9\.9"):
        find_image(engine, "apache/kafka:4.9.9", build)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("apache/kafka:4.3.0", (4, 3, 0)),
        ("somewhere.test:5000/apache/kafka:3.9.1", (3, 9, 1)),
        ("apache/kafka:latest", None),
        ("apache/kafka:4.3.0-rc1", None),
        ("apache/kafka", None),
        ("somewhere.test:5000/kafka", None),
    ],
)
def test_a_tag_names_the_release_if_it_is_one(
    name: str, version: tuple[int, int, int] | None
) -> None:
    assert version_of(name) == version
