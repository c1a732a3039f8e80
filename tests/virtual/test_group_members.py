"""``GroupMember``: whatever a user's protocol does, the group goes on and the user learns of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.errors import InvalidArgument, InvalidConfig, RequestTimedOut, WrongContext
from kclient.testing import Cluster, run_virtually
from tests.virtual.pool import Pool, member_of


class Bug(Exception):
    """An error of the user's code."""


def fail() -> None:
    raise Bug("of the user")


async def gone(member: Any) -> None:
    """Wait until a member has nothing."""
    while member.assignment is not None:  # noqa: ASYNC110 - it is cheap on virtual time
        await asyncio.sleep(0.01)


async def until_all_have(data: bytes, *members: kclient.GroupMember) -> None:
    async with asyncio.timeout(120):
        while any(  # noqa: ASYNC110 - it is cheap on virtual time
            m.assignment is None or m.assignment.data != data for m in members
        ):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked", "on_lost"])
def test_what_the_protocol_raises_is_raised_once_and_the_membership_goes_on(name: str) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                first = await member.joined()
                pool.acts[name] = fail
                if name == "on_lost":
                    with cluster.faults.hang():
                        await gone(member)
                else:
                    member.rejoin("a test")
                with pytest.raises(Bug, match="of the user"):
                    await member.wait_for_rebalance()
                pool.acts.clear()
                again = await member.joined(60.0)
                assert again.generation > first.generation
                assert member.health().ok

    run_virtually(main())


def test_iterating_goes_on_after_what_the_protocol_raised() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                steps = member.assignments()
                first = await anext(steps)
                pool.acts["on_revoked"] = fail
                member.rejoin("a test")
                with pytest.raises(Bug):
                    await anext(steps)
                assert (await anext(steps)).generation == first.generation + 1

    run_virtually(main())


def test_a_member_without_metadata_joins_once_it_has_some_and_reports_why_it_has_not() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            pool.acts["metadata"] = fail
            async with member_of(cluster, pool) as member:
                with pytest.raises(Bug):
                    await member.joined(10.0)
                assert not cluster.requests.of("JoinGroup")
                pool.acts.clear()
                assert (await member.joined(60.0)).data == b"a"
                pool.acts["metadata"] = fail
                member.rejoin("what it gave before will do")
                with pytest.raises(Bug):
                    await member.wait_for_rebalance(60.0)
                assert (await member.joined(60.0)).data == b"a"

    run_virtually(main())


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ([], "a mapping of member id to bytes"),
        ({"nobody": b""}, "gives something to 'nobody', who is no member"),
    ],
)
def test_an_assignment_that_can_not_be_is_named(shares: Any, text: str) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            pool.acts["assign"] = lambda: shares
            async with member_of(cluster, pool) as member:
                with pytest.raises((TypeError, ValueError), match=text):
                    await member.joined(60.0)
                pool.acts.clear()
                assert (await member.joined(60.0)).data == b"a"

    run_virtually(main())


class Awkward(Pool):
    """A protocol, one piece of which raises once it is looked at; see ``breaks``."""

    breaks = ""

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._look("name", "everything")

    @property
    def cooperative(self) -> bool:
        return self._look("cooperative", False)

    @property
    def on_assigned(self) -> Any:  # type: ignore[override]
        return self._look("on_assigned", super().on_assigned)

    @property
    def on_revoked(self) -> Any:  # type: ignore[override]
        return self._look("on_revoked", super().on_revoked)

    def _look(self, name: str, value: Any) -> Any:
        if self.breaks == name:
            raise Bug("of the user")
        return value


@pytest.mark.parametrize("name", ["name", "cooperative", "on_assigned", "on_revoked"])
def test_an_attribute_of_the_protocol_that_raises_ends_no_membership(name: str) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Awkward()
            async with member_of(cluster, pool) as member:
                await member.joined()
                pool.breaks = name
                member.rejoin("a test")
                with pytest.raises(Bug, match="of the user"):
                    await member.wait_for_rebalance(60.0)
                pool.breaks = ""
                member.rejoin("a test")
                assert (await member.wait_for_rebalance(60.0)).data == b"a"
                assert member.health().ok

    run_virtually(main())


def test_a_name_that_is_no_text_any_more_is_named_and_the_former_one_serves() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                await member.joined()
                for name in (None, "", b"bytes", "\ud800"):
                    pool.name = name  # type: ignore[assignment]
                    member.rejoin("a test")
                    with pytest.raises(InvalidConfig, match="whose name is"):
                        await member.wait_for_rebalance(60.0)
                    assert (await member.joined(60.0)).data == b"a"

    run_virtually(main())


def released() -> memoryview:
    """A view that can't be read any more."""
    view = memoryview(b"share")
    view.release()
    return view


class Broken(dict[str, bytes]):
    """A mapping that can't be read."""

    def items(self) -> Any:
        fail()


class Alike:
    """No text, but equal to one."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return self.text == other


class Speechless(Exception):
    """Can't be shown."""

    def __str__(self) -> str:
        raise Bug("of the user")


async def other_task_is_cancelled() -> Any:
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task


def speechless() -> None:
    raise Speechless


@pytest.mark.parametrize("gives", ["released", "broken", "speechless"])
def test_assignments_that_raise_when_they_are_read_are_the_users_error(gives: str) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                first = await member.joined()
                ours = first.member_id
                kinds: dict[str, tuple[Any, type[Exception]]] = {
                    "released": (lambda: {ours: released()}, ValueError),
                    "broken": (lambda: Broken({ours: b"share"}), Bug),
                    "speechless": (speechless, Speechless),
                }
                pool.acts["assign"], kind = kinds[gives]
                member.rejoin("a test")
                with pytest.raises(kind):
                    await member.wait_for_rebalance(60.0)
                pool.acts.clear()
                assert (await member.joined(60.0)).data == b"a"
                assert member.health().ok

    run_virtually(main())


def test_a_member_id_in_another_type_is_the_member_that_it_equals() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                ours = (await member.joined()).member_id
                pool.acts["assign"] = lambda: {Alike(ours): b"share"}
                member.rejoin("a test")
                assert (await member.wait_for_rebalance(60.0)).data == b"share"

    run_virtually(main())


@pytest.mark.parametrize("cancelled", [False, True])
def test_metadata_that_raises_when_it_is_read_is_the_users_error(cancelled: bool) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                await member.joined()
                if cancelled:
                    task = await other_task_is_cancelled()
                    pool.acts["metadata"] = task.result
                else:
                    pool.offer = released()  # type: ignore[assignment]
                member.rejoin("a test")
                with pytest.raises(InvalidArgument if cancelled else ValueError):
                    await member.wait_for_rebalance(60.0)
                assert (await member.joined(60.0)).data == b"a"
                assert member.health().ok

    run_virtually(main())


def test_assignments_that_no_broker_takes_are_refused_with_their_size_and_the_bound() -> None:
    """A broker closes the connection on such a request, which would be sent again for ever."""

    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                ours = (await member.joined()).member_id
                syncs = len(cluster.requests.of("SyncGroup"))
                pool.acts["assign"] = lambda: {ours: bytes(120 << 20)}
                member.rejoin("a test")
                with pytest.raises(InvalidArgument, match=r"125829120 bytes.* over 100663296"):
                    await member.wait_for_rebalance(60.0)
                assert len(cluster.requests.of("SyncGroup")) == syncs
                pool.acts.clear()
                assert (await member.joined(60.0)).data == b"a"

    run_virtually(main())


def test_metadata_that_no_broker_takes_is_refused_with_its_size_and_the_bound() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                await member.joined()
                pool.offer = bytes(120 << 20)
                member.rejoin("a test")
                with pytest.raises(InvalidArgument, match=r"125829120 bytes.* over 100663296"):
                    await member.wait_for_rebalance(60.0)
                assert (await member.joined(60.0)).data == b"a"

    run_virtually(main())


def test_assignments_that_this_broker_does_not_take_are_named_and_tried_rarely() -> None:
    """All of a group is one record, and the broker returns no more than UNKNOWN_SERVER_ERROR."""

    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                await member.joined()
                shared = pool.reported.count("assign")
                pool.offer = bytes(1 << 20)  # and it is the assignment as well
                member.rejoin("a test")
                text = r"2097152 bytes.*message\.max\.bytes"
                with pytest.raises(kclient.errors.UnknownServerError, match=text):
                    await member.wait_for_rebalance(60.0)
                await asyncio.sleep(60.0)
                assert 3 <= pool.reported.count("assign") - shared <= 8
                pool.offer = b"a"
                with pytest.raises(kclient.errors.UnknownServerError, match=text):
                    await member.joined()
                assert (await member.joined(60.0)).data == b"a"

    run_virtually(main())


def test_a_member_that_is_left_out_gets_no_bytes() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            pool.acts["assign"] = lambda: {}
            async with member_of(cluster, pool) as member:
                assert (await member.joined()).data == b""

    run_virtually(main())


def test_a_cooperative_protocol_keeps_what_it_has_while_the_group_rebalances() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            keeping, second = Pool(b"a"), Pool(b"b")
            keeping.cooperative = True  # type: ignore[attr-defined]
            async with member_of(cluster, keeping) as member:
                had = await member.joined()
                second.acts["on_assigned"] = lambda: None
                async with member_of(cluster, second) as other:
                    kept = []
                    while member.assignment is had:
                        kept.append(member.assignment)
                        await asyncio.sleep(0.01)
                    await until_all_have(b"a,b", member, other)
                    assert "on_revoked" not in keeping.reported
                    assert None not in kept
            assert keeping.reported[-1] == "on_revoked"

    run_virtually(main())


def test_what_was_lost_is_reported_once_and_what_was_revoked_is_not_lost() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                await member.joined()
                with cluster.faults.hang():
                    await gone(member)
                assert pool.reported.count("on_lost") == 1
                assert "session_timeout is 10.0 s" in str(pool.errors[0])
                await member.joined()
                pool.acts["on_revoked"] = lambda: asyncio.sleep(15)
                member.rejoin("a test")
                await asyncio.sleep(1)
                with cluster.faults.hang():
                    await asyncio.sleep(20)
                await member.joined()
                assert pool.reported.count("on_lost") == 1

    run_virtually(main())


def test_a_wait_inside_of_the_protocol_is_refused_as_it_would_never_end() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                for call in (member.joined, member.wait_for_rebalance, member.close):
                    pool.acts["on_assigned"] = call
                    member.rejoin("a test")
                    with pytest.raises(WrongContext, match=r"would wait for the end of on_assig"):
                        await member.wait_for_rebalance(60.0)
                pool.acts.clear()
                member.rejoin("a test")
                assert await member.wait_for_rebalance(60.0)

    run_virtually(main())


def test_health_names_the_running_function_of_the_protocol_and_its_time() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                await member.joined()
                assert member.health().running is None
                pool.acts["on_revoked"] = lambda: asyncio.sleep(5)
                member.rejoin("a test")
                await asyncio.sleep(3)
                health = member.health()
                assert health.running == "on_revoked"
                assert health.running_for == pytest.approx(3.0, abs=0.1)
                assert health.group.state == "PREPARING"
                with pytest.raises(RequestTimedOut, match=r"PREPARING; on_revoked\(\) of its"):
                    await member.wait_for_rebalance(0.5)

    run_virtually(main())


class Bare:
    """The least that a protocol is."""

    name, type = "bare", "bare"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> dict[str, bytes]:
        return {one.member_id: b"all" for one in members}


def test_a_protocol_needs_no_more_than_four_things() -> None:
    async def main() -> None:
        async with Cluster() as cluster, member_of(cluster, Bare()) as member:
            assert (await member.joined()).data == b"all"

    run_virtually(main())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": ""}, "whose name is ''"),
        ({"type": 5}, "whose type is 5"),
        ({"metadata": None}, r"needs a method metadata\(\)"),
        ({"assign": None}, r"needs a method assign\(\)"),
        ({"on_lost": 5}, "its on_lost can't be called"),
    ],
)
def test_a_protocol_that_lacks_something_is_refused_when_the_member_is_made(
    changes: dict[str, Any], text: str
) -> None:
    pool = Bare()
    for name, value in changes.items():
        setattr(pool, name, value)
    with pytest.raises(InvalidConfig, match=text):
        member_of("localhost:9092", pool)


def test_wrong_arguments_are_refused_at_once() -> None:
    class Slow(Bare):
        async def metadata(self) -> bytes:  # type: ignore[override]
            return b""

    with pytest.raises(InvalidConfig, match=r"metadata\(\) must be a plain function"):
        member_of("localhost:9092", Slow())
    with pytest.raises(InvalidConfig, match="the class Bare: give an instance"):
        member_of("localhost:9092", Bare)
    for group in ("", None, 5):
        with pytest.raises(InvalidArgument, match="group="):
            kclient.GroupMember("localhost:9092", group=group, protocol=Bare())  # type: ignore[arg-type]

    async def main() -> None:
        async with Cluster() as cluster, member_of(cluster) as member:
            for timeout in (-1, "1", True, float("nan")):
                with pytest.raises(InvalidArgument, match="timeout must be seconds"):
                    await member.joined(timeout)  # type: ignore[arg-type]
                with pytest.raises(InvalidArgument, match="timeout must be seconds"):
                    await member.close(timeout)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="reason="):
                member.rejoin(None)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="reason="):
                member.rejoin("\ud800")
            assert (await member.joined(60.0)).data == b"a"

    run_virtually(main())
