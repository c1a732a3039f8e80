"""Run what docs/testing.md shows: each block of Python, and each line of code in its tables.

Blocks with tests in them run under pytest. All else runs on virtual time in a cluster of its own,
where a topic ``flights`` of three partitions has a few records, as the page states.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kclient
import kclient.testing
from kclient.testing import Cluster, VirtualLoop, broker_configs, run_virtually, topic_configs

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
A_TEST = re.compile(r"^(async )?def (test|pytest)_|^@", re.M)
OF_PYTEST = [block for block in BLOCKS if A_TEST.search(block)]
SCRIPTS = [block for block in BLOCKS if block not in OF_PYTEST]
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
CODE = re.compile(r"`((?:await |for |with |cluster\.|net\.)[^`]+)`")
LINES = [found for row in ROWS if (found := CODE.findall(row))]
"""The code of each row."""

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
ON_VIRTUAL_TIME = """
import asyncio

async def test_an_hour_passes():
    assert type(asyncio.get_running_loop()).__name__ == "VirtualLoop"
    await asyncio.sleep(3000)
"""
"""The test that runs with a block that is a conftest."""
FOR_TESTS_OF_KAFKA = "internal.segment.bytes"
"""A configuration that Kafka's documentation doesn't have, either."""


def test_the_page_is_read() -> None:
    assert len(OF_PYTEST) >= 4
    assert len(SCRIPTS) >= 8
    assert sum(map(len, LINES)) >= 80


async def prepared(cluster: Cluster) -> dict[str, Any]:
    """The names that the page takes for granted."""
    cluster.create_topic("flights", partitions=3)
    async with kclient.Producer(cluster.bootstrap) as producer:
        for partition in range(3):
            await producer.send("flights", b"UA 1545", key=b"JFK", partition=partition)
    await cluster.wait_in_sync()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    names = {name: getattr(kclient.testing, name) for name in kclient.testing.__all__}
    return names | {"asyncio": asyncio, "kclient": kclient, "cluster": cluster, "net": loop.network}


async def execute(code: str, names: dict[str, Any]) -> None:
    """Run ``code`` as the body of a coroutine."""
    compiled = compile(code, "<docs/testing.md>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)
    if inspect.iscoroutine(result):
        await result


def play(*codes: str) -> None:
    failures: list[dict[str, Any]] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, failure: failures.append(failure))
        async with Cluster(brokers=3, racks=["a", "b", "c"]) as cluster:
            names = await prepared(cluster)
            for code in codes:
                await execute(code, names)

    run_virtually(scene())
    assert failures == []


@pytest.mark.parametrize("codes", LINES, ids=lambda codes: codes[0][:60])
def test_code_in_tables_runs(codes: list[str]) -> None:
    play(*codes)


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: " ".join(block.split())[:60])
def test_blocks_run(block: str) -> None:
    play(block)


def section(heading: str) -> str:
    (found,) = re.findall(rf"^## {heading}\n(.*?)^## ", PAGE, re.M | re.S)
    return str(found)


def test_configurations_that_are_named_are_kafkas() -> None:
    named = re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", section("Configurations that mean something"))
    known = {*broker_configs.ALL_DEFINITIONS, *topic_configs.ALL_DEFINITIONS}
    assert len(named) > 40
    assert {*named} <= known


@pytest.mark.parametrize("module", [broker_configs, topic_configs])
def test_configurations_that_are_acted_on_are_named(module: ModuleType) -> None:
    acted_on = re.findall(r"_(?:int\(|values\[)\"([a-z.]+)\"", inspect.getsource(module))
    assert len(acted_on) > 10
    page = section("Configurations that mean something")
    assert [name for name in acted_on if f"`{name}`" not in page] in ([], [FOR_TESTS_OF_KAFKA])


def test_links_of_the_page_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.M)
    places = {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}
    assert {*re.findall(r"\]\(#([^)]*)\)", PAGE)} <= places


def test_readme_shows_a_test_that_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Testing your own code\n(.*?)^## ", readme, re.M | re.S)
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    exec(compile(block, "<README.md>", "exec"), {})


def test_tests_pass(tmp_path: Path) -> None:
    for number, block in enumerate(OF_PYTEST):
        folder = tmp_path / f"block_{number}"
        folder.mkdir()
        if block.startswith("# conftest.py"):
            (folder / "conftest.py").write_text(block)
            block = ON_VIRTUAL_TIME
        (folder / "test_block.py").write_text(block)
    (tmp_path / "pytest.ini").write_text(INI)
    plugin = ["-p", "kclient.pytest_plugin", "-p", "no:kclient", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-q", "--import-mode=importlib", str(tmp_path)],
        cwd=tmp_path,
        env={
            **{key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"},
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def endless_loops(code: str) -> list[tuple[ast.AsyncFor, list[ast.stmt]]]:
    """Each ``async for`` over a consumer without a break or return, with the code after it."""
    tree = compile(code, "<page>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    found = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for index, inner in enumerate(body if isinstance(body, list) else ()):
            if isinstance(inner, ast.AsyncFor) and ast.unparse(inner.iter) == "consumer":
                if not any(isinstance(part, ast.Break | ast.Return) for part in ast.walk(inner)):
                    found.append((inner, body[index + 1 :]))
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/consumers.md", "docs/arrow.md"])
def test_nothing_stands_behind_a_loop_that_does_not_end(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    behind = [ast.unparse(rest[0]) for code in blocks for _, rest in endless_loops(code) if rest]
    assert not behind
