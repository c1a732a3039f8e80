"""Quotas at work: a client's rate, and for how long it is throttled when it exceeds its quota.

``ClientQuotas`` are the rates at one broker (KIP-13), ``MutationQuotas`` what a controller has left
for each client (KIP-599). Both find the quota of a client in the image, by Kafka's order, and are
asked only while there are any. Formulas and windows are Kafka's. Sans-IO.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, inf
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.testing.quota_rules import CLIENT_ID, USER, Entity, Quotas
from kclient.testing.responses import ApiError

PRODUCER, CONSUMER, MUTATIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "controller_mutation_rate",
)

Client: TypeAlias = tuple[str, str]
"""User and client id of a request; a quota's rate is of both, or of one, with "" for the other."""


def quota_of(quotas: Quotas, kind: str, client: Client) -> tuple[Client, float] | None:
    """The quota of a client, and whose rate it limits; None if it has none."""
    for entity, whose in _levels(*client):
        limit = quotas.get(entity, {}).get(kind)
        if limit is not None:
            return whose, limit
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, Client]]:
    """The entities whose quota a client may have, the first one counts."""
    for name in (user, None):
        if client_id:
            for other in (client_id, None):
                yield ((CLIENT_ID, other), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, "")
    if client_id:
        for other in (client_id, None):
            yield ((CLIENT_ID, other),), ("", client_id)


@dataclass(slots=True)
class _Sample:
    begun_at: int
    last_at: int
    value: float = 0.0


class Rate:
    """A rate over several windows; times are in milliseconds.

    Args:
        samples: How many windows, including the current one.
        window_ms: The length of each.
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self._count = samples
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now: int) -> None:
        """Count a value."""
        samples = self._samples
        if not samples or now - samples[-1].begun_at >= self._window_ms:
            samples.append(_Sample(now, now))
        samples[-1].value += value
        samples[-1].last_at = now

    def throttle_ms(self, limit: float, now: int) -> int:
        """How long nothing must be recorded, until the rate is at ``limit`` again; 0 if it is."""
        samples = self._samples
        while samples and now - samples[0].last_at >= self._count * self._window_ms:
            samples.popleft()
        elapsed = now - (samples[0].begun_at if samples else now)
        missing = self._count - 1 - elapsed // self._window_ms
        elapsed = max(elapsed + max(missing, 0) * self._window_ms, 1)
        rate = sum(one.value for one in samples) / (elapsed / 1000)
        return floor((rate - limit) / limit * elapsed + 0.5) if rate > limit else 0


class ClientQuotas:
    """The rates of a broker's clients."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._window = samples, window_ms
        self._rates: dict[tuple[str, Client], Rate] = {}

    def charge(self, quotas: Quotas, kind: str, client: Client, value: float, now: int) -> int:
        """Count bytes of a client; return for how many milliseconds it is throttled."""
        found = quota_of(quotas, kind, client)
        if found is None:
            return 0
        whose, limit = found
        if (kind, whose) not in self._rates:
            self._rates[kind, whose] = Rate(*self._window)
        rate = self._rates[kind, whose]
        rate.record(value, now)
        return rate.throttle_ms(limit, now)

    def most(self, quotas: Quotas, kind: str, client: Client) -> float:
        """Bytes above which a client is throttled even if it had none before."""
        found = quota_of(quotas, kind, client)
        samples, window_ms = self._window
        return inf if found is None else found[1] * (samples - 1) * window_ms / 1000


class MutationQuotas:
    """What is left of each client's mutations: a token bucket, which quota and time fill."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left: dict[Client, tuple[float, int]] = {}

    def of_request(
        self, quotas: Quotas, client: Client, now: int, *, strict: bool
    ) -> MutationQuota:
        """The quota of a client during one request; a strict one refuses what exceeds it."""
        return MutationQuota(self, quota_of(quotas, MUTATIONS, client), now, strict)

    def left(self, whose: Client, limit: float, now: int) -> float:
        """How many mutations are left; negative if there were more."""
        most = self._seconds * limit
        tokens, at = self._left.get(whose, (most, now))
        return min(tokens + limit * (now - at) / 1000, most)

    def take(self, whose: Client, left: float, now: int) -> None:
        """Set what is left."""
        self._left[whose] = left, now


@dataclass(slots=True)
class MutationQuota:
    """The quota of one client during one request.

    Attributes:
        throttle_ms: For how long the client is throttled.
    """

    _all: MutationQuotas
    _found: tuple[Client, float] | None
    _now: int
    _strict: bool
    throttle_ms: int = 0

    def record(self, partitions: int) -> None:
        """Count partitions that are created or deleted.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED: there were too many before; these aren't counted.
        """
        if self._found is None:
            return
        whose, limit = self._found
        left = self._all.left(whose, limit, self._now)
        if self._strict and left < 0:
            self.throttle_ms = floor(-left / limit * 1000 + 0.5)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        left -= partitions
        self._all.take(whose, left, self._now)
        if left < 0 and not self._strict:
            self.throttle_ms = floor(-left / limit * 1000 + 0.5)


UNLIMITED = MutationQuota(MutationQuotas(0.0), None, 0, False)
"""Of clients without a quota."""
