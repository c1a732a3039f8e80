"""What the controller looks at before it keeps new configurations: the whole that comes out.

Used by the handlers of both APIs that alter configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kclient.error_codes import ErrorCode
from kclient.testing.broker_config_rules import check_min_isr
from kclient.testing.config_access import ConfigAccess
from kclient.testing.config_descriptions import Resource
from kclient.testing.config_rules import (
    check_client_metrics,
    check_duplicates,
    check_group,
    named_twice,
    unknown_type,
)
from kclient.testing.refused import Refused
from kclient.testing.topic_rules import check_name

R = TypeVar("R", bound=Any)
A = TypeVar("A", bound=Any)


def alter_each(
    resources: Sequence[R], alter: Callable[[R], None], answer: Callable[[int, str], A]
) -> list[A]:
    """Alter each resource of a request; what is refused, or named twice, has it in its answer.

    Args:
        resources: As the request names them.
        alter: Alters one, or raises Refused.
        answer: Makes the answer for a type and a name.
    """
    twice = check_duplicates((one.resource_type, one.resource_name) for one in resources)
    answers = []
    for one in resources:
        made = answer(one.resource_type, one.resource_name)
        answers.append(made)
        try:
            if (one.resource_type, one.resource_name) in twice:
                raise named_twice()  # AlterConfigs of Kafka means to say so, but never answers
            alter(one)
        except Refused as refused:
            made.error_code, made.error_message = refused.code, refused.message
    return answers


def known_resource(number: int) -> Resource:
    """The kind of resource with that number. Raises Refused: INVALID_REQUEST."""
    try:
        return Resource(number)
    except ValueError:
        raise unknown_type(number) from None


def check_whole(
    access: ConfigAccess,
    resource: Resource,
    name: str,
    touched: Iterable[str],
    new: Mapping[str, str],
) -> None:
    """Raise Refused unless exactly ``new`` may be set on a resource.

    Args:
        access: What is set now.
        resource: Its kind.
        name: Its name.
        touched: What the request names.
        new: All that would be set.
    """
    if resource == Resource.TOPIC:
        _check_topic(access, name, new)
    elif resource == Resource.BROKER:
        current = access.given(resource, name)
        check_min_isr(touched, current, new, for_all=not name)
    elif resource == Resource.GROUP:
        check_group(name, new, access.layers())
    else:
        check_client_metrics(name, new)


def _check_topic(access: ConfigAccess, name: str, new: Mapping[str, str]) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    access.checked_topic(new)
    if access.topic(name) is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
