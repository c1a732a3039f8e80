"""FindCoordinator: of groups, one and several, and of invalid keys."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.conformance.members import coordinator
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

SHARE = 2


@scenario("FindCoordinator")
async def of_a_group_in_every_version(run: Run) -> None:
    group = run.name("group")
    await coordinator(run, group)
    await run.ask_each(FindCoordinatorRequest(group), 0, 1, 2, 3)
    await run.ask_each(FindCoordinatorRequest(coordinator_keys=[group]), 4, 5, 6)


@scenario("FindCoordinator")
async def of_several_groups(run: Run) -> None:
    groups = [run.name(stem) for stem in ("a", "b", "c")]
    await coordinator(run, groups[0])
    await run.ask_each(FindCoordinatorRequest(coordinator_keys=groups), 4, 6)
    await run.ask(FindCoordinatorRequest(coordinator_keys=[groups[0], groups[0]]), 4, "twice")


@scenario("FindCoordinator")
async def of_no_group(run: Run) -> None:
    await run.ask_each(FindCoordinatorRequest(coordinator_keys=[]), 4, 6)


@scenario("FindCoordinator")
async def of_an_empty_name(run: Run) -> None:
    await coordinator(run, run.name("group"))
    await run.ask_each(FindCoordinatorRequest(""), 0, 3)
    await run.ask(FindCoordinatorRequest(coordinator_keys=[""]), 4)


@scenario("FindCoordinator", ErrorCode.INVALID_REQUEST)
async def kinds_of_keys_that_can_not_be(run: Run) -> None:
    for kind in (3, -1):
        await run.ask_each(FindCoordinatorRequest("x", kind), 1, 3, note=f"kind {kind}")
        wanted = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x", "y"])
        await run.ask_each(wanted, 4, 6, note=f"kind {kind}")
    wanted = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=["x"])
    await run.ask_each(wanted, 4, 5, 6, note="share groups")
