"""DescribeCluster: brokers, the controller, endpoint types."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.conformance.run import Run
from tests.conformance.scenario import scenario


@scenario("DescribeCluster")
async def brokers_in_every_version(run: Run) -> None:
    await run.ask_each(DescribeClusterRequest(), 0, 1, 2)


@scenario("DescribeCluster")
async def authorized_operations_where_they_are_asked_for(run: Run) -> None:
    await run.ask_each(DescribeClusterRequest(True), 0, 1, 2)


@scenario("DescribeCluster", ErrorCode.MISMATCHED_ENDPOINT_TYPE)
async def controllers_are_not_listed_by_brokers(run: Run) -> None:
    await run.ask_each(DescribeClusterRequest(endpoint_type=2), 1, 2)


@scenario("DescribeCluster", ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
async def an_endpoint_type_that_nobody_knows(run: Run) -> None:
    for kind in (0, 3, -1):
        await run.ask(DescribeClusterRequest(endpoint_type=kind), 1, f"type {kind}")


@scenario("DescribeCluster")
async def fenced_brokers_where_there_are_none(run: Run) -> None:
    await run.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
