"""DescribeAcls, CreateAcls and DeleteAcls without an authorizer.

Where there is one, tests/security compares the embedded cluster with a secured broker.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.testing.authorizer import PatternType
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.unit.testing.acl_calls import acl, create, delete, describe, one_filter


@scenario("DescribeAcls", ErrorCode.SECURITY_DISABLED)
async def all_acls(run: Run) -> None:
    await run.ask_each(describe(principal=None), 1, 2, 3)


@scenario("DescribeAcls")
async def elements_that_nobody_knows(run: Run) -> None:
    await run.ask(describe(pattern=PatternType.UNKNOWN), 3, "UNKNOWN")


@scenario("CreateAcls", ErrorCode.SECURITY_DISABLED)
async def new_acls(run: Run) -> None:
    await run.ask_each(create(acl("flights"), acl("")), 1, 2, 3)
    await run.ask(create(), 3, "none")


@scenario("CreateAcls")
async def new_acls_that_nobody_knows(run: Run) -> None:
    await run.ask(create(acl("flights"), acl("flights", 0)), 3, "UNKNOWN")


@scenario("DeleteAcls", ErrorCode.SECURITY_DISABLED)
async def some_acls(run: Run) -> None:
    await run.ask_each(delete(one_filter("flights"), one_filter()), 1, 2, 3)
    await run.ask(delete(), 3, "none")


@scenario("DeleteAcls")
async def filters_that_nobody_knows(run: Run) -> None:
    await run.ask(delete(one_filter(), one_filter(operation=0)), 3, "UNKNOWN")
