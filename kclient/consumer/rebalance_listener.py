"""The application's callbacks of rebalances: the listener, its calls, errors, and stalls.

``rebalance`` has one ``RebalanceListenerInvoker``. ``CallbackInvoker`` calls them. What one raises
is kept for the application's next call: neither the group nor the consumer is harmed. When a
callback is called, and what waits for it, is up to ``rebalance``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from kclient.errors import ConsumerStalled, InvalidArgument, InvalidConfig, some_of
from kclient.frozen import Frozen, frozen
from kclient.group.rebalance_callbacks import CallbackInvoker
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kclient.cluster.core import ClientCore
    from kclient.consumer.health import CallbackHealth

logger = logging.getLogger("kclient.consumer")

RebalanceCallback: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
"""Is called with the partitions, sorted; a coroutine function is awaited."""


@frozen
class RebalanceListener(Frozen):
    """The callbacks of one subscription; None where there is nothing to call.

    Attributes:
        on_assigned: Partitions were assigned; called after each rebalance, maybe with none.
        on_revoked: Partitions are about to be revoked: commit what is processed.
        on_lost: Partitions already belong to other members.
    """

    on_assigned: RebalanceCallback | None = None
    on_revoked: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None


def checked_listener(
    on_assigned: RebalanceCallback | None,
    on_revoked: RebalanceCallback | None,
    on_lost: RebalanceCallback | None,
) -> RebalanceListener | None:
    """The callbacks, if any was given. Without ``on_lost``, ``on_revoked`` stands in for it."""
    given = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
    if all(callback is None for callback in given.values()):
        return None
    for name, callback in given.items():
        if callback is not None:
            _check_callback(name, callback)
    return RebalanceListener(on_assigned, on_revoked, on_revoked if on_lost is None else on_lost)


def _check_callback(name: str, callback: RebalanceCallback) -> None:
    """Refuse a callback that can't take partitions; one without a signature is accepted."""
    try:
        inspect.signature(callback).bind(())
    except ValueError:
        return
    except TypeError:
        raise InvalidConfig(
            f"{name}={callback!r} can't be used: allowed is a callable(partitions)",
            hint="plain or async, with one argument: the partitions, sorted",
        ) from None


class RebalanceListenerInvoker:
    """Calls the application's callbacks, and keeps their errors.

    Tasks: those of ``CallbackInvoker``.

    Args:
        core: The client's core.
        listener: The callbacks.
        patience: Seconds that one may take, ``max_poll_interval``.
        on_late: Called each time that they have passed: the next poll has to check.

        Attributes:
            errors: Errors of callbacks that no poll has raised yet.
    """

    def __init__(
        self,
        core: ClientCore,
        listener: RebalanceListener,
        patience: float,
        on_late: Callable[[], object],
    ) -> None:
        self._log = core.hooks.log(logger)
        self._calls = CallbackInvoker(core.clock, self._log, patience, "max_poll_interval", on_late)
        self._partitions: Sequence[TopicPartition] = ()
        self._listener = listener
        self.errors: list[Exception] = []

    # Calling

    def use(self, listener: RebalanceListener) -> None:
        """Call those of ``listener`` from now on."""
        self._listener = listener

    async def call(
        self,
        name: Literal["on_assigned", "on_revoked", "on_lost"],
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Call the callback of that name, if there is one.

        Cancellation: it is cancelled, too, and abandoned where it doesn't end soon.
        """
        callback: RebalanceCallback | None = getattr(self._listener, name)
        if callback is None:
            return
        self._partitions = ordered = sorted(partitions)
        try:
            await self._calls.call(
                name, lambda: callback(list(ordered)), f" on {some_of(ordered) or 'no partitions'}"
            )
        except Exception as error:
            self.keep(name, error)

    def shorten_deadline(self, deadline: float) -> None:
        """Shorten the deadline of a callback that is running."""
        self._calls.shorten_deadline(deadline)

    def check_outside(self, call: str) -> None:
        """Refuse a call that would wait for the callback that awaits it."""
        if self._calls.makes_this_call:
            raise InvalidArgument(
                f"{call}() can't be awaited in a callback of a rebalance",
                hint="set a flag there, and call it from where you poll",
            )

    def keep(self, name: str, error: Exception) -> None:
        """Keep ``error`` of the application's code ``name`` for the next poll."""
        # A close may come before any other call of the application.
        what = type(error).__name__
        self._log.warning("%s raised %s; the next poll does, too", name, what, exc_info=error)
        if all(repr(error) != repr(one) for one in self.errors):
            self.errors.append(error)

    # A callback that takes long

    def raise_pending(self) -> None:
        """Raise an error of a callback, or ConsumerStalled where one goes on for too long.

        That is raised again after as long.
        """
        if self.errors:
            raise self.errors.pop(0)
        if not self._calls.take_stall():
            return
        raise ConsumerStalled(
            f"{self._calls.title} has not ended {self._calls.figures}: until it does, none of them "
            "is read",
            topic_partition=self._partitions[0] if self._partitions else None,
            hint="see what the callback awaits, and give that a timeout: nothing goes on before it",
        )

    def health(self) -> CallbackHealth | None:
        """The callback that is running."""
        from kclient.consumer.health import CallbackHealth

        calls = self._calls
        if calls.name is None:
            return None
        return CallbackHealth(calls.name, tuple(self._partitions), calls.seconds, calls.stalled)
