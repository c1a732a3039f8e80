"""Handlers that fail: tried again, sent to a retry topic or the dead-letter topic, or the end."""

from __future__ import annotations

import asyncio

import pytest

from kclient.consumer.dead_letters import failure_of
from kclient.consumer.handlers.retries import Retries, RetryTopic
from kclient.consumer.handlers.run import Runner
from kclient.consumer.handlers.run_options import RunOptions
from kclient.errors import BufferFull, HandlerFailed, RecordTooLarge
from kclient.record import Record
from kclient.testing import run_virtually
from kclient.types import TopicPartition
from tests.virtual.running_rig import PlainHost, Run, Sent, plan, record

T0 = TopicPartition("t", 0)
STEADY = Retries(max_attempts=3, backoff=1.0, max_backoff=8.0, jitter=0.0)


class Failing:
    """A handler that fails on some offsets, so many times each, and notes when each call came."""

    def __init__(self, host: PlainHost, error: BaseException | None = None, **times: int) -> None:
        self.host = host
        self.error = error or ValueError("no good")
        self.left = {int(name[1:]): count for name, count in times.items()}
        self.calls: list[tuple[int, float]] = []
        self.begun = host.clock.now()

    async def __call__(self, one: Record) -> None:
        self.calls.append((one.offset, self.host.clock.now() - self.begun))
        if self.left.get(one.offset, 0):
            self.left[one.offset] -= 1
            raise self.error
        self.host.note(one)

    def times_of(self, offset: int) -> list[float]:
        return [time for called, time in self.calls if called == offset]


async def outcome(
    host: PlainHost, handler: Failing, wanted: RunOptions, producer: Sent | None = None
) -> BaseException | None:
    async with Run(host, handler, wanted, producer) as run:
        return await run.result()


@pytest.mark.parametrize(
    ("ordering", "waiting"), [("partition", {2, 3, 4, 5}), ("key", {3, 5}), ("none", set[int]())]
)
def test_a_retry_holds_up_only_those_that_may_not_overtake_it(
    ordering: str, waiting: set[int]
) -> None:
    async def main() -> None:
        host = PlainHost([record(0, o, b"%d" % (o % 2)) for o in range(6)])
        for offset in range(4):
            host.append(record(1, offset, b"x"))
        failing = Failing(host)

        async def handler(one: Record) -> None:
            if one.partition == 1:
                host.note(one)
            else:
                await failing(one)

        failing.left = {1: 2}
        async with Run(host, handler, plan(4, ordering, STEADY)):
            await host.caught_up()
        assert failing.times_of(1) == pytest.approx([0, 1, 3])
        late = {offset for offset, time in failing.calls if time > 0} - {1}
        assert late == waiting

    run_virtually(main())


def test_without_a_dead_letter_topic_the_run_ends_with_the_record_not_committed() -> None:
    async def main() -> None:
        host = PlainHost([record(0, o, b"%d" % o) for o in range(6)])
        failing = Failing(host, o2=9)
        error = await outcome(host, failing, plan(4, "key", STEADY))
        assert isinstance(error, HandlerFailed)
        assert (error.offset, error.topic_partition) == (2, T0)
        assert error.__cause__ is failing.error
        assert "offset 2 of t-0, 3 times: ValueError" in str(error)
        assert failing.times_of(2) == pytest.approx([0, 1, 3])
        assert host.committed == {T0: 2}
        assert host.positions == {T0: 2}  # the next poll gives it again

    run_virtually(main())


def test_others_may_end_before_the_run_does() -> None:
    async def main() -> None:
        host = PlainHost([record(p, o) for p in range(2) for o in range(2)])

        async def handler(one: Record) -> None:
            if one.partition == 0:
                await asyncio.sleep(1)
                raise ValueError("no good")
            await asyncio.sleep(5)
            host.note(one)

        async with Run(host, handler, plan(retries=Retries(max_attempts=1))) as run:
            assert isinstance(await run.result(), HandlerFailed)
        assert host.committed == {TopicPartition("t", 1): 1}
        assert host.positions == {T0: 0, TopicPartition("t", 1): 1}

    run_virtually(main())


@pytest.mark.parametrize(
    "retries", [Retries(give_up_on=(ValueError,)), Retries(retry_on=(OSError,))]
)
def test_what_is_not_to_be_tried_again_goes_to_the_dead_letters_at_once(retries: Retries) -> None:
    async def main() -> None:
        host = PlainHost([record(0, 0)])
        failing, sent = Failing(host, o0=9), Sent()
        wanted = plan(retries=retries, retry_topics=[RetryTopic("r", 5)], dead_letter_topic="dead")
        async with Run(host, failing, wanted, sent):
            await asyncio.sleep(60)
        assert len(failing.calls) == 1
        assert [one[0] for one in sent.records] == ["dead"]

    run_virtually(main())


def test_a_dead_letter_keeps_what_it_was_and_names_the_reason() -> None:
    async def main() -> None:
        headers = (("trace", b"7"), ("kclient.topic", b"forged"), ("kclient.attempts", b"900"))
        one = Record("t", 0, 5, 1234, b"k", None, headers)
        host = PlainHost([one, record(0, 6)])
        failing, sent = Failing(host, KeyError("x" * 5_000), o5=9), Sent(seconds=2.0)
        async with Run(host, failing, plan(retries=STEADY, dead_letter_topic="dead"), sent):
            await asyncio.sleep(4)
            assert failing.times_of(6) == []
            host.commit_nowait()
            assert host.committed == {}  # it isn't acknowledged yet
            await asyncio.sleep(4)
            host.note(one)
            host.commit_nowait()
            assert host.committed == {T0: 7}
        ((topic, value, key, reported),) = sent.records
        assert (topic, value, key) == ("dead", None, b"k")
        assert reported.pop("kclient.message") == repr("x" * 5_000)[:1_000]
        assert reported == {
            "trace": "7",
            "kclient.topic": "t",
            "kclient.partition": "0",
            "kclient.offset": "5",
            "kclient.timestamp": "1234",
            "kclient.attempts": "3",
            "kclient.exception": "KeyError",
        }

    run_virtually(main())


def test_a_record_goes_through_the_retry_topics_and_each_waits_its_time() -> None:
    """One run reads them all, as when the consumer subscribes to the retry topics, too."""

    async def main() -> None:
        host = PlainHost([record(0, 0, b"k")])
        attempts: list[tuple[str, float]] = []
        begun = host.clock.now()
        offsets = {"r1": 0, "r2": 0, "dead": 0}

        class Loop(Sent):
            def send(self, topic, value, *, key=None, headers=()):  # type: ignore[no-untyped-def]
                sent = super().send(topic, value, key=key, headers=headers)

                async def written() -> None:
                    await sent
                    offset, now = offsets[topic], host.clock.wall_ms()
                    host.append(Record(topic, 0, offset, now, key, value, tuple(headers)))
                    offsets[topic] += 1

                return written()

        async def handler(one: Record) -> None:
            attempts.append((one.topic, host.clock.now() - begun))
            if one.topic == "dead":
                failure = failure_of(one)
                assert failure is not None
                assert (failure.topic, failure.partition, failure.offset) == ("t", 0, 0)
                assert failure.attempts == 6
                assert failure.due is None
                host.note(one)
            else:
                raise ValueError("no good")

        wanted = plan(
            retries=Retries(max_attempts=2, backoff=1.0, jitter=0.0),
            retry_topics=[RetryTopic("r1", 10.0), RetryTopic("r2", 100.0)],
            dead_letter_topic="dead",
        )
        async with Run(host, handler, wanted, Loop()):
            await asyncio.sleep(300)
        topics = [topic for topic, _ in attempts]
        assert topics == ["t", "t", "r1", "r1", "r2", "r2", "dead"]
        times = [round(time) for _, time in attempts]
        assert times == [0, 1, 11, 12, 112, 113, 113]

    run_virtually(main())


def test_a_retry_topic_waits_paused_and_a_forged_time_no_longer_than_its_delay() -> None:
    async def main() -> None:
        host = PlainHost([record(0, 0)])
        now, due = host.clock.wall_ms(), (("kclient.due", b"9" * 18),)
        for offset in range(50):
            host.append(Record("r", 0, offset, now, None, b"", due))
        watch = Failing(host)
        wanted = plan(retry_topics=[RetryTopic("r", 60.0)], dead_letter_topic="d", concurrency=64)
        async with Run(host, watch, wanted, Sent()) as run:
            await asyncio.sleep(59)
            assert host.paused == {TopicPartition("r", 0)}
            assert run.runner.health().in_flight <= 25
            assert len(watch.calls) == 1  # that of another topic
            await asyncio.sleep(2)
            assert len(watch.calls) == 51

    run_virtually(main())


def test_a_dead_letter_that_can_not_be_sent_yet_waits_and_holds_up_no_worker() -> None:
    async def main() -> None:
        host = PlainHost([record(0, o, b"%d" % o) for o in range(4)])
        failing, sent = Failing(host, o0=9), Sent(BufferFull("full"), BufferFull("full"))
        wanted = plan(1, "key", Retries(max_attempts=1, backoff=5.0), dead_letter_topic="dead")
        async with Run(host, failing, wanted, sent):
            await asyncio.sleep(1)
            assert [offset for offset, _ in failing.calls] == [0, 1, 2, 3]
            assert sent.records == []
            await asyncio.sleep(60)
            assert [one[1] for one in sent.records] == [b"0-0"]
            assert len(failing.calls) == 4

    run_virtually(main())


def test_a_dead_letter_that_can_not_be_sent_at_all_ends_the_run() -> None:
    async def main() -> None:
        host = PlainHost([record(0, 0)])
        failing, sent = Failing(host, o0=9), Sent(RecordTooLarge("too large"))
        wanted = plan(retries=Retries(max_attempts=1), dead_letter_topic="dead")
        error = await outcome(host, failing, wanted, sent)
        assert isinstance(error, HandlerFailed)
        assert "can't be sent to dead: too large" in str(error)
        assert error.__cause__ is failing.error
        assert host.positions == {T0: 0}

    run_virtually(main())


def test_a_cancellation_that_a_handler_raises_is_a_failure_like_others() -> None:
    async def main() -> None:
        host = PlainHost([record(0, o) for o in range(3)])
        failing = Failing(host, asyncio.CancelledError(), o1=1)
        async with Run(host, failing, plan(retries=STEADY)) as run:
            await host.caught_up()
            assert run.runner.health().failures == 1

    run_virtually(main())


def test_a_handler_that_cancels_its_own_task_has_failed_and_others_go_on() -> None:
    async def main() -> None:
        host = PlainHost([record(0, o, b"%d" % o) for o in range(20)])
        failed: list[int] = []

        async def handler(one: Record) -> None:
            if one.offset % 5 == 0 and one.offset not in failed:
                failed.append(one.offset)
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            await asyncio.sleep(1)
            host.note(one)

        async with Run(host, handler, plan(2, "key", STEADY)) as run:
            await host.caught_up()
            assert run.runner.health().failures == 4

    run_virtually(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["ctrl-c", "exit"])
def test_an_exit_that_a_handler_raises_is_raised_by_run(error: BaseException) -> None:
    async def main() -> None:
        host = PlainHost([record(0, o, b"%d" % o) for o in range(3)])
        failing = Failing(host, error, o1=1)
        with pytest.raises(type(error)):
            await Runner(host, failing, plan(1, "key"), None).run()
        assert host.committed == {T0: 1}
        assert host.positions == {T0: 1}

    run_virtually(main())
