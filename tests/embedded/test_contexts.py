"""Clients used from another thread, another loop or another process: refused by every call."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kclient.errors import WrongContext
from kclient.testing import Cluster
from tests.support.contexts import calls, not_called, outcomes, running, still_work

PROJECT = Path(__file__).parents[2]


def check(said: dict[str, str], word: str) -> None:
    wrong = {name: text for name, text in said.items() if not text.startswith("WrongContext: ")}
    assert wrong == {}
    assert all(word in text for text in said.values())


async def test_every_call_is_refused_in_another_thread() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with running(cluster) as clients:
            assert not_called(clients) == set()
            said = await asyncio.to_thread(lambda: asyncio.run(outcomes(clients)))
            check(said, "thread")
            assert await still_work(clients)


async def test_calls_that_do_not_wait_are_refused_in_a_thread_without_a_loop() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with running(cluster) as clients:

            def use() -> None:
                for name in ("producer.send", "producer.enqueue_nowait", "consumer.pause"):
                    with pytest.raises(WrongContext, match="run_coroutine_threadsafe"):
                        calls(clients)[name]()

            await asyncio.to_thread(use)
            assert await still_work(clients)


def test_every_call_is_refused_in_another_loop() -> None:
    with asyncio.Runner() as home, asyncio.Runner() as abroad:
        cluster = Cluster(brokers=1)
        home.run(cluster.start())
        cluster.create_topic("t")
        context = running(cluster)
        clients = home.run(context.__aenter__())
        check(abroad.run(outcomes(clients)), "event loop")
        assert home.run(still_work(clients))
        home.run(context.__aexit__(None, None, None))
        home.run(cluster.close())


def test_every_call_is_refused_after_a_fork_and_the_parent_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.contexts"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=100.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    check(said["child"], "after a fork")
    assert said["parent"]
