"""``close`` is bounded in every state of the world, and loses nothing where all is well.

Seven states, three clients: it returns within its timeout and a second, on virtual time; every
waiter in the client is notified; nothing is left behind; afterwards the client reports that it is
closed, and ``flush`` doesn't hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Sequence
from typing import Any

import pytest

import kclient
from kclient.clock import SystemClock
from kclient.errors import BufferFull, ClientClosed, FlushFailed, KafkaError
from kclient.network.dialer import SocketAddress, TcpDialer
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.virtual.cancelling import client_timers

TIMEOUTS = (0.0, 0.7, 5.0)
MANY = 100_000
"""Records that a producer has when it is closed while all is well."""


class State(enum.Enum):
    """State of the world when close is called."""

    HEALTHY = "all is well"
    FROZEN = "brokers take connections and bytes, and say nothing, as under SIGSTOP"
    REFUSED = "brokers are gone, and their ports refuse"
    BOOTSTRAPPING = "the client looks for a first broker, in vain so far"
    DNS_HANGS = "the look-up of the first broker's name hangs"
    BUFFER_FULL = "all memory is taken, and more callers wait for space"
    CONCURRENT = "several callers close at once"


class World:
    """A cluster and a client, brought into a state."""

    def __init__(self, kind: str, state: State) -> None:
        self.cluster = Cluster(brokers=2)
        self.kind = kind
        self.state = state
        self.client: Any = None
        self.waiting: list[asyncio.Task[Any]] = []
        self.deliveries: list[Any] = []
        self.starts = state in (State.BOOTSTRAPPING, State.DNS_HANGS)

    def make(self) -> Any:
        """The client, not started."""
        settings: dict[str, Any] = {"bootstrap_timeout": 60.0}
        bootstrap = self.cluster.bootstrap
        if self.state is State.DNS_HANGS:
            # The real dialer: it never comes as far as a socket.
            settings["dialer"] = TcpDialer(SystemClock(), resolver=_hanging)
            bootstrap = "kafka.example:9092"
        if self.kind == "producer":
            if self.state is State.BUFFER_FULL:
                settings |= {"buffer_memory": 20_000, "batch_size": 4_000}
            return kclient.Producer(bootstrap, **settings)
        if self.kind == "consumer":
            topics = () if self.starts else ("t",)
            if self.state is State.BUFFER_FULL:
                settings |= {"buffer_memory": 5_000, "max_partition_fetch_bytes": 2_000}
            return kclient.Consumer(bootstrap, *topics, auto_offset_reset="earliest", **settings)
        return kclient.Admin(bootstrap, **settings)

    async def set_up(self) -> None:
        """Make the state."""
        net: Any = asyncio.get_running_loop().network  # type: ignore[attr-defined]
        self.cluster.create_topic("t", partitions=2, replication_factor=2)
        if self.kind == "consumer":
            async with kclient.Producer(self.cluster.bootstrap) as producer:
                await producer.send_many("t", (b"x" * 100 for _ in range(500)))
            await asyncio.sleep(0.01)  # the close of connections reaches the brokers
        self.client = self.make()
        if self.state is State.BOOTSTRAPPING:
            net.blackhole("broker-1")
            net.refuse("broker-2")
        if self.starts:
            self._wait(self.client.start(), "start")
        else:
            await self.client.start()
            await self._use()
        if self.state is State.FROZEN:
            net.freeze()
        elif self.state is State.REFUSED:
            for node_id in self.cluster.brokers:
                await self.cluster.crash(node_id)
        elif self.state is State.BUFFER_FULL:
            net.freeze()
        if not self.starts:
            self._begin_calls()
        # All is still in memory where all is well: to deliver it is up to close.
        await asyncio.sleep(0 if self.state in (State.HEALTHY, State.CONCURRENT) else 0.3)

    async def _use(self) -> None:
        if self.kind == "producer":
            await self.client.send("t", b"first", partition=0)
        elif self.kind == "consumer":
            assert await self.client.poll(1, timeout=5.0)
        else:
            await self.client.list_topics()

    def _begin_calls(self) -> None:
        """Calls that are in flight when close comes."""
        client = self.client
        if self.kind == "producer":
            full = self.state is State.BUFFER_FULL
            count = MANY if self.state is State.HEALTHY else 1_000 if full else 100
            with contextlib.suppress(BufferFull) if full else contextlib.nullcontext():
                for number in range(count):
                    value = b"%08d" % number + (b"x" * 180 if full else b"")
                    self.deliveries.append(client.send("t", value, partition=number % 2))
            assert not full or len(self.deliveries) < count
            if self.state is State.BUFFER_FULL:
                for _ in range(5):
                    self._wait(client.enqueue("t", b"y" * 500), "enqueue")
            if self.state in (State.FROZEN, State.BUFFER_FULL):
                self._wait(client.flush(), "flush")
        elif self.kind == "consumer":
            self._wait(_read_all(client), "reader")
            if self.state is State.FROZEN:
                self._wait(client.end_offsets([TopicPartition("t", 0)]), "end_offsets")
        else:
            self._wait(client.create_topics([kclient.NewTopic("new")]), "create_topics")
            self._wait(client.list_topics(), "list_topics")

    def _wait(self, call: Any, name: str) -> None:
        self.waiting.append(asyncio.get_running_loop().create_task(call, name=name))

    async def close(self, timeout: float) -> list[float]:
        """Seconds that each caller's close took."""
        if self.state is not State.CONCURRENT:
            return [await self._timed(timeout)]
        return list(await asyncio.gather(*(self._timed(timeout) for _ in range(5))))

    async def _timed(self, timeout: float) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self.client.close(timeout)
        except FlushFailed as error:
            assert self.kind == "producer"
            assert self.state is not State.HEALTHY or not timeout
            assert error.count
            assert error.errors
        return loop.time() - began

    async def is_closed(self) -> None:
        """The client refuses all use, at once."""
        client, loop = self.client, asyncio.get_running_loop()
        began = loop.time()
        if self.kind == "producer":
            with pytest.raises(ClientClosed):
                client.send("t", b"late")
            with pytest.raises(ClientClosed):
                await client.enqueue("t", b"late")
            with pytest.raises(ClientClosed):
                await client.flush()
            assert client.health().client.state == "closed"
        elif self.kind == "consumer":
            with pytest.raises(ClientClosed):
                await client.poll()
        else:
            with pytest.raises(ClientClosed):
                await client.list_topics()
        with pytest.raises(ClientClosed):
            await client.start()
        await client.close(0.0) if self.kind != "producer" else None
        assert loop.time() == began


async def _hanging(host: str, port: int) -> Sequence[SocketAddress]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def _read_all(consumer: Any) -> int:
    count = 0
    async for _ in consumer:
        count += 1
    return count


@pytest.mark.parametrize("timeout", TIMEOUTS)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_close_is_bounded_in_every_state(kind: str, state: State, timeout: float) -> None:
    reported: list[str] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context)))
        world = World(kind, state)
        async with world.cluster:
            await world.set_up()
            for took in await world.close(timeout):
                assert took <= timeout + 1.0
            # Every waiter has been notified by now, and not by some time-out of its own.
            await asyncio.sleep(0)
            done, hanging = await asyncio.wait(world.waiting or [_nothing()], timeout=0.01)
            assert not hanging
            for task in done:
                error = task.exception()
                assert error is None or isinstance(error, (ClientClosed, FlushFailed)), repr(error)
            assert all(delivery.done() for delivery in world.deliveries)
            await world.is_closed()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert client_timers(loop) == []
            loop.network.heal()
            await asyncio.sleep(0.01)
            assert loop.network.links == []
            _judge_records(world, timeout)

    run_virtually(main(), limit=600.0)
    assert reported == []


def _nothing() -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(asyncio.sleep(0))


def _judge_records(world: World, timeout: float) -> None:
    if world.kind != "producer" or world.starts:
        return
    written = {
        bytes(record.value or b"") for p in range(2) for record in world.cluster.records("t", p)
    }
    if world.state in (State.HEALTHY, State.CONCURRENT) and timeout:
        assert len(written) == len(world.deliveries) + 1
    for delivery in world.deliveries:
        error = delivery.exception()
        if error is None:
            continue
        assert isinstance(error, ClientClosed)
        assert error.maybe_written is not None
    acknowledged = sum(delivery.exception() is None for delivery in world.deliveries)
    assert acknowledged <= len(written)


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_the_caller_with_the_least_time_counts(kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        world = World(kind, State.FROZEN)
        async with world.cluster:
            await world.set_up()
            patient = loop.create_task(world._timed(60.0))
            await asyncio.sleep(0.1)
            assert await world._timed(0.5) <= 1.5
            assert await patient <= 1.7
            await asyncio.gather(*world.waiting, return_exceptions=True)
            loop.network.heal()  # type: ignore[attr-defined]

    run_virtually(main())


def test_undelivered_records_fail_with_their_reason() -> None:
    async def main() -> dict[str, str]:
        reasons = {}
        for state in (State.FROZEN, State.REFUSED, State.BUFFER_FULL):
            world = World("producer", state)
            async with world.cluster:
                await world.set_up()
                with pytest.raises(FlushFailed) as caught:
                    await world.client.close(1.0)
                reasons[state.name] = str(caught.value)
                assert caught.value.__cause__ is caught.value.errors[0]
                await asyncio.gather(*world.waiting, return_exceptions=True)
                asyncio.get_running_loop().network.heal()  # type: ignore[attr-defined]
        producer = kclient.Producer("broker-1:9092")
        async with Cluster(brokers=1):
            await producer.start()
            producer.send("nowhere", b"v")
            await asyncio.sleep(0.3)
            with pytest.raises(FlushFailed) as caught:
                await producer.close(0.1)
            reasons["UNKNOWN"] = str(caught.value)
        return reasons

    reasons = run_virtually(main())
    assert "has not answered" in reasons["FROZEN"]
    assert "Connection refused" in reasons["REFUSED"] or "reset" in reasons["REFUSED"]
    assert "found no space" in reasons["BUFFER_FULL"]
    assert "wait for their acknowledgement" in reasons["BUFFER_FULL"]
    assert "topic nowhere doesn't exist" in reasons["UNKNOWN"]


def test_a_dialer_that_takes_no_cancellation_does_not_hold_up_close() -> None:
    class Stubborn:
        def __init__(self) -> None:
            self.released = asyncio.Event()

        async def dial(self, target: Any, protocol_factory: Any) -> Any:
            while not self.released.is_set():
                try:
                    await self.released.wait()
                except asyncio.CancelledError:
                    continue
            raise KafkaError("at last")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        dialer = Stubborn()
        admin = kclient.Admin("somewhere:9092", dialer=dialer)
        starting = loop.create_task(admin.start())
        await asyncio.sleep(0.1)
        began = loop.time()
        await admin.close(2.0)
        assert loop.time() - began <= 3.0
        with pytest.raises(ClientClosed):
            await starting
        dialer.released.set()
        await asyncio.sleep(0.1)

    run_virtually(main())


def test_what_was_written_and_is_never_read_is_dropped() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=4)
            producer = kclient.Producer(cluster.bootstrap)
            await producer.start()
            await asyncio.gather(*(producer.send("t", b"first", partition=p) for p in range(4)))
            loop.network.freeze()
            for number in range(200):
                producer.send("t", b"x" * 20_000, partition=number % 4)
            await asyncio.sleep(0.1)
            assert any(not one.writable for one in producer.health().client.connections)
            began = loop.time()
            with pytest.raises(FlushFailed):
                await producer.close(0.5)
            assert loop.time() - began <= 1.5
            loop.network.heal()
            await asyncio.sleep(0.01)
            assert loop.network.links == []

    run_virtually(main())


def test_callers_waiting_for_memory_are_notified_at_once() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        world = World("producer", State.BUFFER_FULL)
        async with world.cluster:
            await world.set_up()
            enqueued = [task for task in world.waiting if task.get_name() == "enqueue"]
            closing = loop.create_task(world.close(5.0))
            await asyncio.sleep(0.01)
            assert len(enqueued) == 5
            for task in enqueued:
                error = task.exception()
                assert isinstance(error, ClientClosed)
                assert error.maybe_written is False
            assert not closing.done()
            loop.network.heal()
            await asyncio.gather(closing, *world.waiting, return_exceptions=True)

    run_virtually(main())


def test_failing_very_many_batches_yields_to_the_loop() -> None:
    partitions = 2_000

    async def main() -> int:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=partitions)
            cluster.faults.drop("Produce", times=None)
            producer = kclient.Producer(cluster.bootstrap, linger=4.0)
            await producer.start()
            await producer.partitions_for("t")
            for index in range(partitions):
                producer.send("t", b"x", partition=index)
            turns = -1

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            settling = producer._flusher._response_handler
            given_up_at: list[int] = []
            give_up = settling.give_up

            def noting(batch: Any, error: Any) -> None:
                given_up_at.append(turns)
                give_up(batch, error)

            settling.give_up = noting  # type: ignore[method-assign]
            counting = asyncio.create_task(count())
            with pytest.raises(FlushFailed):
                await producer.close(timeout=0.0)
            counting.cancel()
            assert len(given_up_at) == partitions
            return given_up_at[-1] - given_up_at[0]

    # A slice is 0.01 s of effort, and each batch costs a reading of 0.0001 s.
    assert run_virtually(main()) >= partitions // 200
