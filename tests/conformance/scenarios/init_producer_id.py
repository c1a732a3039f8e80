"""InitProducerId of idempotent producers; `transactional_producers.py` has transactional ids."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.conformance.run import Run
from tests.conformance.scenario import scenario


@scenario("InitProducerId")
async def in_every_version(run: Run) -> None:
    await run.ask_each(InitProducerIdRequest(None, 60_000), *range(6))


@scenario("InitProducerId")
async def each_gets_another_id(run: Run) -> None:
    for _ in range(3):
        await run.ask(InitProducerIdRequest(None, 60_000), 4)


@scenario("InitProducerId", ErrorCode.INVALID_REQUEST)
async def an_empty_transactional_id(run: Run) -> None:
    await run.ask_each(InitProducerIdRequest("", 60_000), 0, 2, 4, 5)


@scenario("InitProducerId", ErrorCode.INVALID_REQUEST)
async def id_and_epoch_given(run: Run) -> None:
    for producer, epoch in ((7, -1), (-1, 3), (-2, 0), (7, -2)):
        asked = InitProducerIdRequest(None, 60_000, producer, epoch)
        await run.ask_each(asked, 3, 4, note=f"{producer}, {epoch}")


@scenario("InitProducerId")
async def id_and_epoch_without_a_transactional_id(run: Run) -> None:
    await run.ask_each(InitProducerIdRequest(None, 60_000, 7, 3), 3, 4, 5)


@scenario("InitProducerId")
async def timeouts_do_not_matter_without_transactions(run: Run) -> None:
    for timeout in (0, -1, 1, (1 << 31) - 1):
        await run.ask(InitProducerIdRequest(None, timeout), 4, f"timeout {timeout}")
