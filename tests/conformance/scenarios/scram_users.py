"""DescribeUserScramCredentials and AlterUserScramCredentials."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.conformance.plain import plain
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

SHA_256, SHA_512 = 1, 2


def upsert(
    user: str, mechanism: int = SHA_256, iterations: int = 4096
) -> AlterUserScramCredentialsRequest:
    wanted = ScramCredentialUpsertion(user, mechanism, iterations, b"salt", b"salted password")
    return AlterUserScramCredentialsRequest([], [wanted])


def delete(user: str, mechanism: int = SHA_256) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, mechanism)], [])


def describe(*users: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest([UserName(one) for one in users])


async def show(run: Run, user: str) -> None:
    """Record what a user has, by mechanism: Kafka's order is that of a map of identities."""
    await run.published()
    found = await run.quietly(describe(user), 0)
    for one in found.results:
        one.credential_infos.sort(key=lambda info: info.mechanism)
    run.at(1).record("one user", found.NAME, plain(found, 0))


async def forget(run: Run, user: str, *mechanisms: int) -> None:
    """Leave the broker, which other tests share, as it was."""
    for mechanism in mechanisms:
        await run.quietly(delete(user, mechanism), 0)


@scenario("AlterUserScramCredentials")
async def a_user_that_comes_and_goes(run: Run) -> None:
    user = run.name("alice")
    await run.ask(upsert(user), 0)
    await run.ask(upsert(user, SHA_512, 16_384), 0)
    await show(run, user)
    await run.ask(upsert(user, SHA_256, 5000), 0)
    await show(run, user)
    await run.ask(delete(user), 0)
    await show(run, user)
    await run.ask(delete(user, SHA_512), 0)
    await show(run, user)


@scenario("AlterUserScramCredentials", ErrorCode.UNACCEPTABLE_CREDENTIAL)
async def iterations_out_of_range(run: Run) -> None:
    user = run.name("alice")
    for iterations in (-1, 0, 4095, 16_385):
        await run.ask(upsert(user, SHA_256, iterations), 0)


@scenario("AlterUserScramCredentials", ErrorCode.UNACCEPTABLE_CREDENTIAL)
async def a_user_without_a_name(run: Run) -> None:
    await run.ask(upsert("", 7), 0)
    await run.ask(delete(""), 0)


@scenario("AlterUserScramCredentials", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
async def mechanisms_that_nobody_knows(run: Run) -> None:
    user = run.name("alice")
    for mechanism in (0, 3, -1):
        await run.ask(upsert(user, mechanism, 0), 0)
        await run.ask(delete(user, mechanism), 0)


@scenario("AlterUserScramCredentials", ErrorCode.RESOURCE_NOT_FOUND)
async def a_deletion_of_what_is_not_there(run: Run) -> None:
    user = run.name("alice")
    await run.ask(delete(user), 0)
    await run.quietly(upsert(user), 0)
    await run.ask(delete(user, SHA_512), 0)
    await forget(run, user, SHA_256)


@scenario("AlterUserScramCredentials", ErrorCode.DUPLICATE_RESOURCE)
async def a_user_twice(run: Run) -> None:
    user = run.name("alice")
    one, other = (upsert(user, mechanism).upsertions[0] for mechanism in (SHA_256, SHA_512))
    gone = delete(user).deletions[0]
    await run.ask(AlterUserScramCredentialsRequest([], [one, other]), 0)
    await show(run, user)
    await run.quietly(upsert(user), 0)
    await run.ask(AlterUserScramCredentialsRequest([gone], [other]), 0, "one of each")
    await run.ask(AlterUserScramCredentialsRequest([gone, gone], [other]), 0, "three")
    await show(run, user)
    await forget(run, user, SHA_256)


@scenario("AlterUserScramCredentials", ErrorCode.UNACCEPTABLE_CREDENTIAL)
async def one_valid_and_one_invalid(run: Run) -> None:
    user, other = run.name("alice"), run.name("bob")
    wanted = [upsert(user, SHA_256, 1).upsertions[0], upsert(other).upsertions[0]]
    await run.ask(AlterUserScramCredentialsRequest([], wanted), 0)
    await show(run, other)
    await run.ask(AlterUserScramCredentialsRequest(), 0, "of nobody")
    await forget(run, other, SHA_256)


@scenario("DescribeUserScramCredentials", ErrorCode.RESOURCE_NOT_FOUND)
async def users_that_are_not_there(run: Run) -> None:
    await run.ask(describe(run.name("nobody")), 0)
    await run.ask(describe(""), 0)


@scenario("DescribeUserScramCredentials", ErrorCode.DUPLICATE_RESOURCE)
async def a_user_named_twice(run: Run) -> None:
    user = run.name("alice")
    await run.quietly(upsert(user), 0)
    await run.published()
    await run.ask(describe(user, user), 0)
    await forget(run, user, SHA_256)


@scenario("DescribeUserScramCredentials")
async def all_users(run: Run) -> None:
    user = run.name("alice")
    await run.quietly(upsert(user), 0)
    await run.published()
    for request in (DescribeUserScramCredentialsRequest(None), describe()):
        found = await run.quietly(request, 0)
        found.results = [one for one in found.results if one.user == user]  # others have made some
        run.at(1).record("all users", request.NAME, plain(found, 0))
    await forget(run, user, SHA_256)
