"""Three brokers: which one coordinates a group, and the responses of the others."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Request
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.leave_group import LeaveGroupRequest
from kclient.protocol.messages.list_groups import ListGroupsRequest
from tests.conformance.members import Member, join, leave, new_group, sync
from tests.conformance.places import OF_THREE
from tests.conformance.run import Run, until
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.group_admin import delete_offsets
from tests.conformance.scenarios.offset_commit import commit
from tests.conformance.scenarios.offset_fetch import of, of_groups


async def brokers_of(run: Run, group: str) -> tuple[int, int]:
    """The coordinator of a group, once it is ready, and another broker."""
    found = await run.quietly(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    coordinator = int(found.coordinators[0].node_id)

    async def ready() -> bool:
        seen = await run.quietly(DescribeGroupsRequest([group]), 5, node=coordinator)
        return not seen.groups[0].error_code

    await until(ready)
    return coordinator, next(node for node in run.up if node != coordinator)


async def commit_once_ready(
    run: Run, group: str, topic: str, offset: int, *, metadata: str = "", node: int
) -> None:
    """Commit at a coordinator, which may learn of a new topic later than the other brokers."""

    async def committed() -> bool:
        response = await run.quietly(commit(group, topic, offset, metadata=metadata), 9, node=node)
        return not response.topics[0].partitions[0].error_code

    await until(committed)


async def ask_another(run: Run, group: str, *asked: tuple[Request, int]) -> None:
    """Record the responses of a broker that isn't the coordinator."""
    _, another = await brokers_of(run, group)
    for request, version in asked:
        await run.ask(request, version, "another broker", node=another)


@scenario("FindCoordinator", nodes=3)
async def all_brokers_name_the_same_one(run: Run) -> None:
    # The node id isn't recorded: the leaders of __consumer_offsets are random.
    group = await new_group(run)
    coordinator, another = await brokers_of(run, group)
    for node in run.up:
        found = await run.quietly(FindCoordinatorRequest(group), 2, node=node)
        if (found.node_id, found.error_code) != (coordinator, 0):
            raise RuntimeError(f"broker {node} says {found}, where {coordinator} was named")
    await run.ask(FindCoordinatorRequest(coordinator_keys=[]), 4, node=another)
    await run.ask(DescribeGroupsRequest([group]), 5, "who is named", node=coordinator)


@scenario("JoinGroup", ErrorCode.NOT_COORDINATOR, nodes=3)
async def joining_at_another_broker(run: Run) -> None:
    group = await new_group(run)
    asked = join(group)
    await ask_another(run, group, *((asked, version) for version in (0, 4, 7, 9)))
    await ask_another(run, group, (join(group, "nobody"), 9))


@scenario("JoinGroup", ErrorCode.GROUP_MAX_SIZE_REACHED, nodes=3)
async def a_group_that_is_full(run: Run) -> None:
    group = await new_group(run)
    coordinator, _ = await brokers_of(run, group)
    first, *others = (
        Member(run, group, node=coordinator, instance=str(number))
        for number in range(OF_THREE["group.max.size"])
    )
    await first.join()
    await first.sync(assignments={first.id: b"all"})
    pending = [await other.begin_join() for other in others]
    await first.join("the leader")
    for other, answer in zip(others, pending, strict=True):
        await other.joined(answer)
    await first.sync("the leader", assignments={first.id: b"all"})
    late = run.peer(node=coordinator)
    await late.ask(join(group), 9, "one more")
    await late.ask(join(group, instance="late"), 5, "a static one more")
    await late.ask(join(group), 3, "in an old version")


@scenario("SyncGroup", ErrorCode.NOT_COORDINATOR, nodes=3)
async def syncing_at_another_broker(run: Run) -> None:
    group = await new_group(run)
    await ask_another(run, group, *((sync(group, 1, "nobody"), version) for version in (0, 5)))


@scenario("Heartbeat", ErrorCode.NOT_COORDINATOR, nodes=3)
async def heartbeats_at_another_broker(run: Run) -> None:
    group = await new_group(run)
    asked = HeartbeatRequest(group, 1, "nobody")
    await ask_another(run, group, (asked, 0), (asked, 4))


@scenario("LeaveGroup", ErrorCode.NOT_COORDINATOR, nodes=3)
async def leaving_at_another_broker(run: Run) -> None:
    group = await new_group(run)
    asked = leave(group, ("nobody", None))
    await ask_another(run, group, (LeaveGroupRequest(group, "nobody"), 0), (asked, 3), (asked, 5))


@scenario("OffsetCommit", ErrorCode.NOT_COORDINATOR, nodes=3)
async def commits_at_another_broker(run: Run) -> None:
    topic, group = await run.topic(replicas=[[1]]), await new_group(run)
    asked = commit(group, topic, 1)
    await ask_another(run, group, (asked, 2), (asked, 9))
    await ask_another(run, group, (commit(group, await run.topic_id(topic), 1), 10))


@scenario("OffsetFetch", ErrorCode.NOT_COORDINATOR, nodes=3)
async def offsets_at_another_broker(run: Run) -> None:
    topic, group = await run.topic(replicas=[[1]]), await new_group(run)
    await ask_another(run, group, *((of(group, topic), version) for version in (1, 2, 7)))
    await ask_another(run, group, (of_groups((group, [topic])), 8), (of(group), 7))


@scenario("OffsetDelete", ErrorCode.NOT_COORDINATOR, nodes=3)
async def offsets_are_deleted_at_another_broker(run: Run) -> None:
    topic, group = await run.topic(replicas=[[1]]), await new_group(run)
    await ask_another(run, group, (delete_offsets(group, topic, 0), 0))


@scenario("DescribeGroups", ErrorCode.NOT_COORDINATOR, nodes=3)
async def groups_described_by_another_broker(run: Run) -> None:
    group = await new_group(run)
    asked = DescribeGroupsRequest([group])
    await ask_another(run, group, (asked, 0), (asked, 5), (asked, 6))


@scenario("DeleteGroups", ErrorCode.NOT_COORDINATOR, nodes=3)
async def groups_deleted_by_another_broker(run: Run) -> None:
    group = await new_group(run)
    asked = DeleteGroupsRequest([group])
    await ask_another(run, group, (asked, 0), (asked, 2))


@scenario("ListGroups", nodes=3)
async def groups_are_listed_by_their_coordinator(run: Run) -> None:
    topic, group = await run.topic(replicas=[[1]]), await new_group(run)
    coordinator, another = await brokers_of(run, group)
    await commit_once_ready(run, group, topic, 1, node=coordinator)
    asked = ListGroupsRequest()
    await run.ask(asked, 5, "the coordinator", node=coordinator, listing=True)
    await run.ask(asked, 5, "another broker", node=another, listing=True)


@scenario("OffsetFetch", nodes=3)
async def offsets_survive_their_coordinator(run: Run) -> None:
    topic, group = await run.topic(replicas=[[1, 2, 3]]), await new_group(run)
    coordinator, another = await brokers_of(run, group)
    await commit_once_ready(run, group, topic, 7, metadata="note", node=coordinator)
    await run.stop(coordinator)
    found: list[int] = []

    async def moved() -> bool:
        wanted = FindCoordinatorRequest(coordinator_keys=[group])
        seen = (await run.quietly(wanted, 4, node=another)).coordinators[0]
        if seen.error_code or seen.node_id == coordinator:
            return False
        found[:] = [seen.node_id]
        answer = await run.quietly(of(group, topic), 7, node=seen.node_id)
        return not answer.error_code

    await until(moved)
    await run.ask(of(group, topic), 7, "the new coordinator", node=found[0])
    await run.restart(coordinator, topic)
