"""Quotas of clients by Admin, on a real broker: their administration, and a client that has one."""

from __future__ import annotations

import pytest

import kclient
from kclient import QuotaEntity
from kclient.errors import ClusterAuthorizationFailed, InvalidRequest
from kclient.events import Throttled
from tests.security.people import until, user
from tests.support.kafka import RunningBroker

RATE = 10_000
"""Bytes per second, of windows that are ten seconds long."""

Quotas = dict[str, float]


async def until_shown(
    admin: kclient.Admin, entity: QuotaEntity, expected: dict[QuotaEntity, Quotas]
) -> None:
    """Wait until the quotas that match are these."""

    async def are_shown() -> bool:
        return await admin.describe_client_quotas(entity) == expected

    await until(are_shown)


async def test_quotas_are_described_as_they_were_set(admin: kclient.Admin) -> None:
    ann, ann_anywhere = (
        QuotaEntity(user="ann"),
        QuotaEntity(user="ann", client_id=QuotaEntity.DEFAULT),
    )
    ann_loading = QuotaEntity(user="ann", client_id="zo ë/%")
    await admin.alter_client_quotas(
        {
            ann: {"producer_byte_rate": 1_000, "request_percentage": 12.5},
            ann_anywhere: {"consumer_byte_rate": 2_000},
            ann_loading: {"controller_mutation_rate": 3.5},
        }
    )
    of_ann: dict[QuotaEntity, Quotas] = {
        ann: {"producer_byte_rate": 1_000.0, "request_percentage": 12.5},
        ann_anywhere: {"consumer_byte_rate": 2_000.0},
        ann_loading: {"controller_mutation_rate": 3.5},
    }
    await until_shown(admin, ann, of_ann)
    assert await admin.describe_client_quotas(ann, strict=True) == {ann: of_ann[ann]}
    assert await admin.describe_client_quotas(ann_anywhere) == {ann_anywhere: of_ann[ann_anywhere]}
    named = QuotaEntity(user="ann", client_id=QuotaEntity.ANY)
    assert ann_loading in await admin.describe_client_quotas(named)
    assert of_ann.items() <= (await admin.describe_client_quotas()).items()
    await admin.alter_client_quotas(
        {ann: {"producer_byte_rate": None}, ann_anywhere: {"consumer_byte_rate": None}}
    )
    await until_shown(
        admin, ann, {ann: {"request_percentage": 12.5}, ann_loading: of_ann[ann_loading]}
    )


async def test_addresses_and_defaults_have_quotas_too(admin: kclient.Admin) -> None:
    address, others = QuotaEntity(ip="127.0.0.9"), QuotaEntity(client_id=QuotaEntity.DEFAULT)
    expected: dict[QuotaEntity, Quotas] = {
        address: {"connection_creation_rate": 5.0},
        others: {"producer_byte_rate": 1e12},
    }
    await admin.alter_client_quotas(expected)
    for entity in expected:
        await until_shown(admin, entity, {entity: expected[entity]})
    await admin.alter_client_quotas({others: {"producer_byte_rate": None}})
    await until_shown(admin, others, {})


async def test_quotas_that_are_only_validated_are_not_set(admin: kclient.Admin) -> None:
    tried, known = QuotaEntity(user="tried"), QuotaEntity(user="known")
    await admin.alter_client_quotas({tried: {"producer_byte_rate": 5}}, validate_only=True)
    await admin.alter_client_quotas({known: {"producer_byte_rate": 5}})
    await until_shown(admin, known, {known: {"producer_byte_rate": 5.0}})
    assert await admin.describe_client_quotas(tried) == {}


async def test_what_a_broker_has_no_quota_for_is_an_error_of_its_own(admin: kclient.Admin) -> None:
    unknown, both = QuotaEntity(user="u"), QuotaEntity(user="u", ip="127.0.0.1")
    fraction, good = QuotaEntity(user="v"), QuotaEntity(user="w")
    outcomes = await admin.alter_client_quotas(
        {
            unknown: {"nonsense": 5},
            both: {"producer_byte_rate": 5},
            fraction: {"producer_byte_rate": 0.5},
            good: {"producer_byte_rate": 5},
        },
        return_errors=True,
    )
    assert outcomes.pop(good) is None
    assert {type(error) for error in outcomes.values()} == {InvalidRequest}
    assert "nonsense" in str(outcomes[unknown])
    with pytest.raises(InvalidRequest, match=r"(?i)combination"):
        await admin.describe_client_quotas(both)


async def test_an_ordinary_user_administers_no_quotas(
    secured: RunningBroker, admin: kclient.Admin
) -> None:
    security = await user(admin, secured, "greedy")
    async with kclient.Admin(secured.sasl_tls_bootstrap, security=security) as greedy:
        with pytest.raises(ClusterAuthorizationFailed):
            await greedy.describe_client_quotas()
        with pytest.raises(ClusterAuthorizationFailed):
            await greedy.alter_client_quotas({QuotaEntity(user="greedy"): {"x": None}})


async def test_a_client_over_its_quota_is_throttled(
    secured: RunningBroker, admin: kclient.Admin
) -> None:
    loader = QuotaEntity(client_id="loader")
    await admin.create_topics([kclient.NewTopic("loaded")])
    await admin.alter_client_quotas({loader: {"producer_byte_rate": RATE}})
    await until_shown(admin, loader, {loader: {"producer_byte_rate": float(RATE)}})
    seen: list[Throttled] = []

    class Watching:
        def observe(self, event: object) -> None:
            if isinstance(event, Throttled):
                seen.append(event)

    async with kclient.Producer(
        secured.bootstrap, client_id="loader", observers=[Watching()]
    ) as producer:
        while not seen:
            await producer.send("loaded", bytes(RATE * 11 // 2))
    assert {event.api for event in seen} == {"Produce"}
    assert 0.0 < seen[0].seconds < 5.0
