"""Assignors: assign partitions to the members of a consumer group. Sans-IO.

Four as Java's client has them, as even and as sticky, so that groups can mix clients, whichever
leads; others come from the application (``hooks.Assignor``). ``chosen`` turns the setting into
objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidConfig
from kclient.hooks import require_method
from kclient.settings import nearest

if TYPE_CHECKING:
    from kclient.hooks import Assignor

SETTING = "partition_assignment_strategy"
NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The built-in assignors."""
_ALLOWED = f"{', '.join(NAMES)}, or an object such as hooks.Assignor describes"
_JAVA_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def chosen(strategies: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors that the setting names, in order of preference; the built-in ones are new.

    Raises:
        InvalidConfig: An unknown name, an object that can't be one, or two of the same name.
    """
    found: dict[str, Assignor] = {}
    for one in strategies:
        assignor = _built_in(one) if isinstance(one, str) else _checked(one)
        if assignor.name in found:
            raise InvalidConfig(
                f"{SETTING} holds {assignor.name!r} twice: allowed is each name once"
            )
        found[assignor.name] = assignor
    if not found:
        raise InvalidConfig(f"{SETTING} holds nothing: allowed is {_ALLOWED}")
    return tuple(found.values())


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Whether members keep their partitions in a rebalance: if each of their assignors supports it.

    All can be eager, so a single one that can't be cooperative makes the whole member eager.
    """
    return all(assignor.cooperative for assignor in assignors)


def _built_in(name: str) -> Assignor:
    if name in ("range", "roundrobin"):
        from kclient.group.assignors.range_roundrobin import RangeAssignor, RoundRobinAssignor

        return RangeAssignor() if name == "range" else RoundRobinAssignor()
    if name in ("sticky", "cooperative-sticky"):
        from kclient.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

        return StickyAssignor() if name == "sticky" else CooperativeStickyAssignor()
    near = _JAVA_CLASSES.get(name.rpartition(".")[2]) or nearest(name.lower(), NAMES)
    raise InvalidConfig(
        f"{SETTING} holds {name!r}: allowed is {_ALLOWED}",
        hint=f"did you mean {near!r}?" if near else None,
    )


def _checked(plugin: Any) -> Assignor:
    for method, parameters in (
        ("assign", "cluster, members"),
        ("user_data", "topics"),
        ("assigned", "partitions, generation"),
    ):
        require_method(SETTING, plugin, method, parameters)
    name, cooperative = getattr(plugin, "name", None), getattr(plugin, "cooperative", None)
    if not isinstance(name, str) or not name:
        raise InvalidConfig(f"{SETTING} holds {plugin!r} with name={name!r}: allowed is a text")
    if not isinstance(cooperative, bool):
        raise InvalidConfig(
            f"{SETTING} holds {plugin!r} with cooperative={cooperative!r}: allowed is True or False"
        )
    found: Assignor = plugin
    return found
