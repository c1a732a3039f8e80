"""Quotas: entities, and what newer brokers may describe."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.admin.quotas import QuotaEntity, describe_request, read_described
from kclient.errors import InvalidArgument
from kclient.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


@pytest.mark.parametrize("wrong", [{"user": ""}, {"client_id": 5}, {"ip": b"127.0.0.1"}, {}])
def test_an_entity_needs_a_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong), "user, client_id or ip")):
        QuotaEntity(**wrong)


def test_names_defaults_and_any_are_matched_each_its_own_way() -> None:
    entity = QuotaEntity(user="alice", client_id=QuotaEntity.DEFAULT, ip=QuotaEntity.ANY)
    assert describe_request(entity, strict=True).components == [
        ComponentData("user", 0, "alice"),
        ComponentData("client-id", 1, None),
        ComponentData("ip", 2, None),
    ]


def test_entities_of_unknown_kinds_are_left_out() -> None:
    values = [ValueData("producer_byte_rate", 5.0)]
    known, unknown = EntityData("user", None), EntityData("planet", "mars")
    response = DescribeClientQuotasResponse(
        entries=[EntryData([known], values), EntryData([known, unknown], values)]
    )
    assert read_described(response) == {
        QuotaEntity(user=QuotaEntity.DEFAULT): {"producer_byte_rate": 5.0}
    }
    assert read_described(DescribeClientQuotasResponse(entries=None)) == {}
