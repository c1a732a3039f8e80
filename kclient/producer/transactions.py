"""The door to transactions, which this release keeps shut.

``Producer`` asks here before anything else. The machine of KIP-98 and KIP-890 gets this file; until
then a ``transactional_id`` is refused, rather than ignored: records would look committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import InvalidConfig

if TYPE_CHECKING:
    from kclient.config import ProducerConfig


def refuse_transactions(config: ProducerConfig) -> None:
    """Raise InvalidConfig if ``config`` asks for transactions."""
    if config.transactional_id is not None:
        raise InvalidConfig(
            f"transactional_id={config.transactional_id!r}: transactions are not in this release",
            hint="without it retries of an idempotent producer write no duplicates; but what is "
            "read, processed and written again after a crash is written twice: have readers "
            "recognise it",
        )
