"""Supervision of internal tasks, and where a client may be used."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

import pytest

from kclient.cluster.supervision import Supervisor
from kclient.errors import BackgroundTaskDied, ClientClosed, KafkaError, WrongContext
from kclient.hooks import Counters, Event, Hooks, TaskDied
from tests.unit.cluster.virtual import run, turns


class Seen:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


def make(
    deaths: list[KafkaError] | None = None, observers: tuple[Seen, ...] = ()
) -> tuple[Supervisor, Counters]:
    counters = Counters()
    reported = deaths if deaths is not None else []
    return Supervisor(Hooks(observers), counters, reported.append), counters


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def crash() -> None:
    raise ZeroDivisionError("a bug")


def test_a_client_that_was_not_started_raises() -> None:
    async def main() -> None:
        supervisor, _ = make()
        with pytest.raises(ClientClosed, match=r"not started .*async with"):
            supervisor.check()

    run(main())


def test_outside_of_any_loop_a_client_that_was_not_started_raises_too() -> None:
    supervisor, _ = make()
    with pytest.raises(ClientClosed):
        supervisor.check()


def test_a_closed_client_raises() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        supervisor.check()
        await supervisor.close()
        with pytest.raises(ClientClosed, match="closed"):
            supervisor.check()

    run(main())


def test_another_loop_is_refused() -> None:
    supervisor, _ = make()

    async def enter() -> None:
        supervisor.enter()
        supervisor.check()

    async def use() -> None:
        supervisor.check()

    run(enter())
    with pytest.raises(WrongContext, match="another event loop"):
        run(use())
    with pytest.raises(WrongContext, match="another event loop"):
        supervisor.check()


def test_another_thread_is_refused() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        errors: list[BaseException] = []

        def use() -> None:
            try:
                supervisor.check()
            except WrongContext as error:
                errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert "thread" in str(errors[0])
        assert "run_coroutine_threadsafe" in str(errors[0])
        supervisor.check()

    run(main())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused() -> None:
    async def main() -> int:
        supervisor, _ = make()
        supervisor.enter()
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            supervisor.check()
        except WrongContext as error:
            code = 0 if "after a fork" in str(error) else 2
        finally:
            os._exit(code)

    child = run(main())
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_death_of_a_task_reaches_the_next_check_and_all_listeners() -> None:
    async def main() -> None:
        deaths: list[KafkaError] = []
        seen = Seen()
        supervisor, counters = make(deaths, (seen,))
        supervisor.enter()
        supervisor.spawn(crash(), "sender")
        await turns(3)
        with pytest.raises(BackgroundTaskDied, match="kclient:sender ended with Zero") as error:
            supervisor.check()
        assert isinstance(error.value.__cause__, ZeroDivisionError)
        assert error.value.fatal
        assert deaths == [supervisor.failure]
        assert counters.get("tasks.died") == 1
        assert [type(e) for e in seen.events] == [TaskDied]
        await supervisor.close()

    run(main())


def test_a_task_cancelled_from_outside_has_died() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        supervisor.spawn(forever(), "fetcher").cancel()
        await turns(3)
        with pytest.raises(BackgroundTaskDied, match="cancelled from outside"):
            supervisor.check()

    run(main())


def test_a_task_stopped_on_purpose_has_not() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        await supervisor.stop(supervisor.spawn(forever(), "fetcher"))
        supervisor.check()
        assert supervisor.tasks == ()

    run(main())


def test_a_task_that_ends_by_itself_has_not_either() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        supervisor.spawn(asyncio.sleep(0), "once")
        await turns(3)
        supervisor.check()

    run(main())


def test_the_first_death_is_the_one_that_is_reported() -> None:
    async def main() -> None:
        deaths: list[KafkaError] = []
        supervisor, counters = make(deaths)
        supervisor.enter()
        supervisor.spawn(crash(), "one")
        supervisor.spawn(crash(), "two")
        await turns(3)
        assert len(deaths) == 1
        assert "one" in str(deaths[0])
        assert counters.get("tasks.died") == 2

    run(main())


def test_a_fault_in_the_network_fails_the_client() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        supervisor.listener_failed(KeyError("listener"))
        with pytest.raises(BackgroundTaskDied, match="KeyError"):
            supervisor.check()

    run(main())


def test_raising_the_same_failure_often_does_not_grow_it() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        supervisor.listener_failed(KeyError("listener"))
        depths = []
        for _ in range(5):
            with pytest.raises(BackgroundTaskDied) as error:
                supervisor.check()
            depths.append(len(error.traceback))
        assert len(set(depths)) == 1

    run(main())


def test_close_ends_all_tasks_and_logs_what_failed_while_it_did(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise RuntimeError("on the way out") from None

    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        supervisor.spawn(forever(), "one")
        supervisor.spawn(stubborn(), "two")
        await turns(3)
        await supervisor.close()
        assert supervisor.tasks == ()
        assert supervisor.failure is None

    with caplog.at_level(logging.WARNING, "kclient.cluster"):
        run(main())
    assert "kclient:two failed while it was stopped" in caplog.text


def test_an_endless_task_that_returns_has_died() -> None:
    async def main() -> None:
        supervisor, _ = make()
        supervisor.enter()
        supervisor.spawn(asyncio.sleep(0), "metadata", endless=True)
        await turns(3)
        with pytest.raises(BackgroundTaskDied, match="kclient:metadata ended, though"):
            supervisor.check()

    run(main())


def test_the_death_of_one_task_ends_the_others_but_not_those_that_are_lent() -> None:
    async def main() -> None:
        deaths: list[KafkaError] = []
        supervisor, counters = make(deaths)
        supervisor.enter()
        other = supervisor.spawn(forever(), "other", endless=True)
        lent = supervisor.spawn_owned(forever(), "close")
        supervisor.spawn(crash(), "one")
        await turns(6)
        assert other.cancelled()
        assert not lent.done()
        assert supervisor.tasks == ("kclient:close",)
        assert len(deaths) == counters.get("tasks.died") == 1
        late = supervisor.spawn(forever(), "late")
        await turns(3)
        assert late.cancelled()
        lent.cancel()
        await supervisor.close()

    run(main())


def test_a_lent_task_may_end_in_any_way() -> None:
    async def main() -> None:
        supervisor, counters = make()
        supervisor.enter()
        supervisor.spawn_owned(crash(), "dial")
        supervisor.spawn_owned(forever(), "dial").cancel()
        supervisor.spawn_owned(asyncio.sleep(0), "dial")
        await turns(3)
        supervisor.check()
        assert supervisor.tasks == ()
        assert counters.get("tasks.died") == 0

    run(main())


def test_restarts_are_counted() -> None:
    supervisor, counters = make()
    supervisor.task_restarted("dial-1-fetch", "it was cancelled from outside")
    assert supervisor.restarts == counters.get("tasks.restarted") == 1
