"""The image is built once, and again when its inputs have changed; and has all it needs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.docker import engine, image

VERSION = "4.3.0"


@pytest.mark.timeout(300)
def test_the_image_is_built_once() -> None:
    name = image.ensure(VERSION)
    assert name == f"kclient-test/kafka:{VERSION}"
    with engine.connected() as client:
        built = client.images.get(name).id
        assert image.ensure(VERSION) == name
        assert client.images.get(name).id == built


class StaleImage:
    """An engine whose image was built of something else."""

    def __init__(self) -> None:
        self.images = self
        self.id, self.labels = "stale", {image._RECIPE_LABEL: "of yesterday"}
        self.removed: list[str] = []

    def get(self, name: str) -> StaleImage:
        return self

    def remove(self, name: str) -> None:
        self.removed.append(name)


def test_an_image_of_another_recipe_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stale, built = StaleImage(), []
    monkeypatch.setattr(engine, "connected", lambda: contextlib.nullcontext(stale))
    monkeypatch.setattr(image, "lay_out", lambda context, jars: None)
    monkeypatch.setattr(image, "_build", lambda client, context, name, recipe: built.append(name))
    assert image.ensure(VERSION) == f"kclient-test/kafka:{VERSION}"
    assert built == [f"kclient-test/kafka:{VERSION}"]
    assert stale.removed == ["stale"]


def test_a_build_that_fails_reports_why(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY nothing/ /\n")
    with (
        engine.connected() as client,
        pytest.raises(RuntimeError, match=r"build of kclient-test/none:1 failed.*nothing"),
    ):
        image._build(client, tmp_path, "kclient-test/none:1", "recipe")


def test_compression_has_its_libraries() -> None:
    """zstd, snappy and lz4 are native code that jars carry, and that needs libraries of its own."""
    name = image.ensure(VERSION)
    with engine.connected() as client:
        listing = client.containers.run(name, ["ls", "-R", "/lib", "/opt/kafka/libs"], remove=True)
    for needed in ("libc.so.6", "libpthread.so.0", "libm.so.6", "zstd-jni", "snappy-java", "lz4"):
        assert needed in listing.decode()


@pytest.mark.parametrize("version", ["3.8.1", "1.0.2"])
def test_an_old_release_is_refused(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert image.main([version]) == 1
    assert "3.9.0 and newer only" in capsys.readouterr().err


def test_what_is_no_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert image.main(["latest"]) == 1
    assert "'latest' is not a version" in capsys.readouterr().err
