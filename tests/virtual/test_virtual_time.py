"""The loop of virtual time: the clock jumps, a seed decides, and a stuck run raises an error."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from typing import Any

import pytest

import kclient
from kclient.clock import loop_environment
from kclient.errors import InvalidArgument
from kclient.testing import (
    Cluster,
    Deadlock,
    Livelock,
    OutOfTime,
    Stuck,
    VirtualLoop,
    run_virtually,
)


async def test_the_clock_jumps_to_the_next_timer() -> None:
    loop = asyncio.get_running_loop()
    began, real = loop.time(), time.monotonic()
    await asyncio.sleep(3600)
    assert loop.time() - began == pytest.approx(3600)
    assert time.monotonic() - real < 60


async def test_timers_run_in_the_order_of_their_times() -> None:
    seen: list[float] = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(seconds)

    source = random.Random(4)
    delays = [source.uniform(0, 100) for _ in range(200)]
    await asyncio.gather(*(sleeper(delay) for delay in delays))
    assert seen == sorted(delays)


def test_all_tasks_waiting_without_a_timer_is_a_deadlock_that_names_each_wait() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_nobody(), name="the waiter")

    with pytest.raises(Deadlock) as caught:
        run_virtually(main())
    assert "the waiter" in str(caught.value)
    assert "wait_for_nobody" in str(caught.value)
    assert "test_virtual_time.py" in str(caught.value)


def test_a_deadlock_is_raised_even_where_tasks_refuse_to_be_cancelled() -> None:
    async def main() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if asyncio.get_running_loop().time() < 0:
                    raise

    with pytest.raises(Deadlock):
        run_virtually(main())


def test_callbacks_that_spin_are_a_livelock() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    loop = VirtualLoop(max_rounds=1000)
    with pytest.raises(Livelock, match="1000 rounds"):
        loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(1))
    loop.close()


def test_a_run_over_its_limit_is_out_of_time() -> None:
    with pytest.raises(OutOfTime, match="60 virtual seconds"):
        run_virtually(asyncio.sleep(61), limit=60.0)
    run_virtually(asyncio.sleep(59), limit=60.0)
    assert issubclass(OutOfTime, Stuck)


def test_a_run_ends_although_a_task_that_sleeps_again_and_again_refuses_to_be_cancelled() -> None:
    async def refuse() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                if asyncio.get_running_loop().time() < 0:
                    raise

    async def main(seconds: float) -> None:
        task = asyncio.create_task(refuse())
        await asyncio.sleep(seconds)
        assert task.done(), "mine"

    with pytest.raises(OutOfTime):
        run_virtually(main(61), limit=60.0)
    # What the run itself failed with is the news, not what its cleaning up meets.
    with pytest.raises(AssertionError, match="mine"):
        run_virtually(main(1), limit=60.0)


def test_what_main_returns_or_raises_comes_through() -> None:
    async def fails() -> None:
        raise KeyError("mine")

    async def gives() -> int:
        return 3

    assert run_virtually(gives()) == 3
    with pytest.raises(KeyError):
        run_virtually(fails())


async def test_jobs_for_an_executor_run_in_callbacks() -> None:
    import threading

    here = threading.get_ident()
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, threading.get_ident) == here
    assert await asyncio.to_thread(threading.get_ident) == here
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)


async def test_jobs_may_overtake_one_another() -> None:
    done: list[int] = []
    await asyncio.gather(*(asyncio.to_thread(done.append, number) for number in range(20)))
    assert sorted(done) == list(range(20))
    assert done != sorted(done)


async def test_a_job_that_is_cancelled_before_its_time_does_not_run() -> None:
    done: list[int] = []
    job = asyncio.get_running_loop().run_in_executor(None, done.append, 1)
    job.cancel()
    await asyncio.sleep(1)
    assert done == []


async def test_sockets_and_look_ups_are_refused_with_what_to_use_instead() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(NotImplementedError, match="go to its network"):
        await loop.getaddrinfo("localhost", 9092)
    with pytest.raises(NotImplementedError, match="no place for datagrams"):
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    with pytest.raises(NotImplementedError, match="no place for a socket"):
        await loop.create_unix_server(asyncio.Protocol, "nowhere")
    with pytest.raises(NotImplementedError, match="no place for a socket"):
        await loop.create_unix_connection(asyncio.Protocol, "nowhere")
    with pytest.raises(NotImplementedError, match="no place for files"):
        loop.add_reader(0, print)
    with pytest.raises(NotImplementedError, match="no place for files"):
        loop.add_writer(0, print)
    with pytest.raises(NotImplementedError, match="no place for other processes"):
        await asyncio.create_subprocess_exec("true")
    with pytest.raises(NotImplementedError, match="no place for other processes"):
        await asyncio.create_subprocess_shell("true")


async def test_streams_of_asyncio_talk_over_the_network() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    server = await asyncio.start_server(serve, "shouter", 7)
    reader, writer = await asyncio.open_connection("shouter", 7)
    writer.write(b"hello\n")
    assert await reader.read() == b"HELLO\n"
    writer.close()
    server.close()


async def test_clients_take_network_wall_clock_and_seed_from_the_loop() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert loop_environment() is loop
    async with Cluster() as cluster:
        assert cluster.bootstrap == "broker-1:9092,broker-2:9092,broker-3:9092"
        cluster.create_topic("flights")
        async with kclient.Producer(cluster.bootstrap) as producer:
            await asyncio.sleep(86.4)
            done = await producer.send("flights", b"UA 1545")
    assert done.timestamp == pytest.approx(1_767_225_600_000 + 86_400, abs=200)
    assert loop.network.stats.connects >= 2


async def _a_run(seed_of_faults: int) -> tuple[str, float]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.network.split, loop.network.cut_probability = 0.3, 0.02
    async with Cluster() as cluster:
        cluster.create_topic("flights", partitions=4)
        async with kclient.Producer(cluster.bootstrap, compression="gzip") as producer:
            for number in range(20):
                sent = [producer.send("flights", b"%d" % one) for one in range(number)]
                await asyncio.gather(*sent)
                await asyncio.sleep(loop.rng.uniform(0, 3))
    return loop.network.digest(), loop.time()


def test_a_seed_reproduces_a_run_exactly_and_another_one_differs() -> None:
    first = run_virtually(_a_run(1), seed=1)
    assert run_virtually(_a_run(1), seed=1) == first
    assert run_virtually(_a_run(1), seed=2) != first


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("seed", seed) for seed in ("7", None, 1.0, True)),
        *(("limit", limit) for limit in (0, -1.0, float("nan"), "x")),
        ("network", "x"),
    ],
)
def test_arguments_that_can_not_be_are_named(name: str, wrong: Any) -> None:
    settings: dict[str, Any] = {name: wrong}
    with pytest.raises(InvalidArgument, match=f"{name}="):
        run_virtually(asyncio.sleep(1), **settings)


def test_what_is_no_coroutine_is_refused() -> None:
    main: Any = asyncio.sleep
    with pytest.raises(InvalidArgument, match="call the async function"):
        run_virtually(main)


async def test_a_run_within_a_run_is_refused() -> None:
    with pytest.raises(RuntimeError, match="can't be called where one is running"):
        run_virtually(asyncio.sleep(1))


def test_a_failure_names_its_seed() -> None:
    async def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        run_virtually(fails(), seed=41)
    assert "seed=41" in caught.value.__notes__[0]


def test_tiny_steps_are_a_livelock_too() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1e-9)

    with pytest.raises(Livelock):
        run_virtually(main())


def test_tasks_of_the_user_are_named_before_those_of_clients() -> None:
    async def main() -> None:
        async with Cluster() as cluster, kclient.Producer(cluster.bootstrap):
            await asyncio.Event().wait()

    with pytest.raises(OutOfTime) as caught:
        run_virtually(main(), limit=60.0)
    assert "main" in str(caught.value).splitlines()[1]
    assert "kclient:" in str(caught.value).splitlines()[-1]


async def test_a_service_may_be_ended_by_a_signal() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.raise_signal(signal.SIGTERM)
    await ended.wait()
    assert loop.remove_signal_handler(signal.SIGTERM)
    with pytest.raises(InvalidArgument, match="nobody has added a handler"):
        loop.raise_signal(signal.SIGTERM)


async def test_connections_of_asyncio_fail_as_with_sockets() -> None:
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("nobody", 80)
