"""Client quotas (KIP-546): DescribeClientQuotas (48), AlterClientQuotas (49)."""

from __future__ import annotations

from collections.abc import Container

from kclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from kclient.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.quota_rules import IP, Entity, altered, matching, shown
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, bad_request


def describe_quotas(
    call: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Describe the quotas of the entities that match a filter."""
    try:
        call.check_fault()
        call.check_allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        found = matching(call.image.quotas, request.components, strict=request.strict)
    except ApiError as refused:
        return DescribeClientQuotasResponse(
            error_code=refused.code, error_message=refused.message, entries=None
        )
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                [EntityData(*one) for one in entity],
                [ValueData(*one) for one in values.items()],
            )
            for entity, values in found.items()
        ],
    )


def alter_quotas(
    call: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Set and remove quotas; each entity has an outcome of its own."""
    outcomes: dict[Entity, ApiError | None]
    try:
        call.check_fault()
        call.check_allowed(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
        controller = call.broker.controller()
        new: dict[Entity, dict[str, float]] = {}
        outcomes = {}
        for entry in request.entries:
            entity = _entity_of(entry)
            try:
                _check_once(entry, entity, outcomes)
                current = controller.image.quotas.get(entity, {})
                new[entity] = altered(entity, entry.ops, current)
                outcomes[entity] = None
            except ApiError as refused:
                outcomes[entity] = refused
        if new and not request.validate_only:
            controller.write(controller.image.with_quotas(new))
        call.check_fault(after=True)
    except ApiError as refused:
        outcomes = {_entity_of(entry): refused for entry in request.entries}
    return AlterClientQuotasResponse(
        entries=[_outcome(entity, refused) for entity, refused in outcomes.items()]
    )


def _entity_of(entry: RequestEntryData) -> Entity:
    """The last item of a type counts."""
    names = {one.entity_type: one.entity_name for one in entry.entity}
    return tuple(sorted(names.items(), key=lambda item: (item[0] == IP, item[0])))


def _check_once(entry: RequestEntryData, entity: Entity, before: Container[Entity]) -> None:
    """Raise ApiError if the entity was named before, or a key twice; one text is for both."""
    if entity in before or len({one.key for one in entry.ops}) < len(entry.ops):
        raise bad_request(f"Ignoring duplicate entity {shown(entity)}")


def _outcome(entity: Entity, refused: ApiError | None) -> ResponseEntryData:
    made = ResponseEntryData(entity=[ResponseEntityData(*one) for one in entity])
    if refused is not None:
        made.error_code, made.error_message = refused.code, refused.message
    else:
        made.error_message = None
    return made
