"""The operations of ``Admin`` on ACLs, quotas, users of SCRAM and delegation tokens.

Thin: requests, values and checks are in ``acls``, ``quotas``, ``users`` and ``delegation_tokens``.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kclient.admin import acls, delegation_tokens, quotas, users
from kclient.cluster.calls import AnyNode, ControllerTarget
from kclient.cluster.fanout import fan_out
from kclient.errors import BrokerError, KafkaError, broker_error
from kclient.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kclient.protocol.messages.describe_acls import DescribeAclsRequest
from kclient.protocol.messages.describe_delegation_token import DescribeDelegationTokenResponse
from kclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from kclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.cluster.core import ClientCore
    from kclient.secret import Secret

_SALT_BYTES = 20


async def create_acls(
    core: ClientCore, bindings: Sequence[acls.AclBinding], timeout: float
) -> dict[acls.AclBinding, KafkaError | None]:
    """See ``Admin.create_acls``."""
    return await fan_out(core.calls, acls.CreateAcls(), bindings, timeout)


async def delete_acls(
    core: ClientCore, filters: Sequence[acls.AclRef], timeout: float
) -> dict[acls.AclRef, list[acls.AclBinding] | KafkaError]:
    """See ``Admin.delete_acls``."""
    return await fan_out(core.calls, acls.DeleteAcls(), filters, timeout)


async def describe_acls(
    core: ClientCore, acl_filter: acls.AclFilter, timeout: float
) -> list[acls.AclBinding]:
    """See ``Admin.describe_acls``."""
    response = await core.calls.call(
        AnyNode(),
        lambda version: acls.describe_request(acl_filter, version),
        api=DescribeAclsRequest,
        timeout=timeout,
        check=acls.describe_error,
    )
    return acls.read_described(response)


async def alter_client_quotas(
    core: ClientCore,
    alterations: Mapping[quotas.QuotaEntity, quotas.Quotas],
    validate_only: bool,
    timeout: float,
) -> dict[quotas.QuotaEntity, KafkaError | None]:
    """See ``Admin.alter_client_quotas``."""
    request = quotas.AlterClientQuotas(alterations, validate_only=validate_only)
    return await fan_out(core.calls, request, alterations, timeout)


async def describe_client_quotas(
    core: ClientCore, entity: quotas.QuotaEntity | None, strict: bool, timeout: float
) -> dict[quotas.QuotaEntity, dict[str, float]]:
    """See ``Admin.describe_client_quotas``."""
    response = await core.calls.call(
        AnyNode(),
        quotas.describe_request(entity, strict=strict),
        timeout=timeout,
        check=quotas.describe_error,
    )
    return quotas.read_described(response)


async def alter_scram_credentials(
    core: ClientCore, alterations: Sequence[users.ScramAlteration], timeout: float
) -> dict[users.ScramAlteration, KafkaError | None]:
    """See ``Admin.alter_user_scram_credentials``."""
    deadline = core.clock.now() + timeout
    salts = {
        one: secrets.token_bytes(_SALT_BYTES)
        for one in alterations
        if isinstance(one, users.ScramUpsertion)
    }
    request = users.AlterScramCredentials(await asyncio.to_thread(users.salted, salts))
    left = max(0.001, deadline - core.clock.now())
    return await fan_out(core.calls, request, alterations, left)


async def describe_scram_credentials(
    core: ClientCore, names: Sequence[str] | None, timeout: float
) -> dict[str, dict[str, int] | KafkaError]:
    """See ``Admin.describe_user_scram_credentials``."""
    if names is not None:
        return await fan_out(core.calls, users.DescribeScramCredentials(), names, timeout)
    response = await core.calls.call(
        ControllerTarget(),
        # All users. Null means the same, but to refuse that, brokers throw an exception.
        DescribeUserScramCredentialsRequest([]),
        timeout=timeout,
        check=users.describe_error,
    )
    return users.read_described(response)


async def create_delegation_token(
    core: ClientCore,
    owner: str | None,
    renewers: Sequence[str],
    max_lifetime: float | None,
    timeout: float,
) -> delegation_tokens.DelegationToken:
    """See ``Admin.create_delegation_token``."""
    response = await core.calls.call(
        ControllerTarget(),
        lambda version: delegation_tokens.create_request(owner, renewers, max_lifetime, version),
        api=CreateDelegationTokenRequest,
        timeout=timeout,
        check=_token_error("creating a delegation token failed"),
    )
    return delegation_tokens.read_created(response, renewers)


async def renew_delegation_token(
    core: ClientCore, hmac: Secret, period: float | None, timeout: float
) -> float:
    """See ``Admin.renew_delegation_token``."""
    request = RenewDelegationTokenRequest(
        delegation_tokens.decoded(hmac), delegation_tokens.milliseconds(period)
    )
    return await _new_expiry(core, request, "renewing", timeout)


async def expire_delegation_token(
    core: ClientCore, hmac: Secret, after: float | None, timeout: float
) -> float:
    """See ``Admin.expire_delegation_token``."""
    request = ExpireDelegationTokenRequest(
        delegation_tokens.decoded(hmac), delegation_tokens.milliseconds(after)
    )
    return await _new_expiry(core, request, "expiring", timeout)


async def _new_expiry(
    core: ClientCore,
    request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
    doing: str,
    timeout: float,
) -> float:
    """Change until when a token is valid; seconds since the epoch."""
    response = await core.calls.call(
        ControllerTarget(),
        request,
        timeout=timeout,
        check=_token_error(f"{doing} a delegation token failed"),
    )
    return float(response.expiry_timestamp_ms / 1000)


async def describe_delegation_tokens(
    core: ClientCore, owners: Sequence[str] | None, timeout: float
) -> list[delegation_tokens.DelegationToken]:
    """See ``Admin.describe_delegation_tokens``."""
    response: DescribeDelegationTokenResponse = await core.calls.call(
        ControllerTarget(),
        delegation_tokens.describe_request(owners),
        timeout=timeout,
        check=_token_error("describing delegation tokens failed"),
    )
    return delegation_tokens.read_described(response)


def _token_error(doing: str) -> Callable[[Any], BrokerError | None]:
    def check(response: Any) -> BrokerError | None:
        return broker_error(response.error_code, doing) if response.error_code else None

    return check
