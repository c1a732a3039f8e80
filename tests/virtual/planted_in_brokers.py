"""Bugs planted into the cluster's brokers, to show that ``Watch`` sees them.

Each is a function that changes a rule of the brokers through a ``MonkeyPatch``.
``test_cluster_run.py`` runs seeds with one bug at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from kclient.testing import controller
from kclient.testing.broker import Broker
from kclient.testing.controller import Controller
from kclient.testing.image import MetadataImage, PartitionRegistration
from kclient.testing.quorum import Quorum
from kclient.testing.replica import Replica
from kclient.testing.topic_configs import TopicConfig


def the_high_watermark_waits_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """What a leader has counts as committed at once."""

    def planted(self: Replica) -> bool:
        before = self.log.high_watermark
        self.log.advance(self.log.end_offset)
        return self.log.high_watermark > before

    patch.setattr(Replica, "advance", planted)


def a_follower_keeps_what_its_leader_never_had(patch: pytest.MonkeyPatch) -> None:
    """It doesn't cut its log back where the logs diverge, and claims to have no epochs."""
    patch.setattr(Replica, "last_fetched_epoch", property(lambda self: -1))


def a_follower_is_in_sync_before_it_caught_up(patch: pytest.MonkeyPatch) -> None:
    """Any follower that fetches joins the ISR."""

    def planted(
        self: Replica, alive: Iterable[int], asking: int | None = None
    ) -> tuple[int, ...] | None:
        if not self.leads or self.pending_isr is not None:
            return None
        known = [one for one in alive if one in self.followers]
        isr = tuple(one for one in self.facts.replicas if one in (*self.facts.isr, *known))
        return None if isr == self.facts.isr else isr

    patch.setattr(Replica, "to_expand", planted)


def whoever_is_up_is_elected(patch: pytest.MonkeyPatch) -> None:
    """In sync or not, the first replica leads, and counts as in sync."""

    def planted(
        facts: PartitionRegistration, alive: Collection[int], config: TopicConfig
    ) -> PartitionRegistration:
        for one in facts.replicas:
            if one in alive:
                return controller.lead(replace(facts, isr=tuple({*facts.isr, one})), one)
        return controller.lead(facts, -1)

    patch.setattr(controller, "elect", planted)


def a_controller_that_was_replaced_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Neither it nor the quorum looks at its epoch."""

    def planted(self: Quorum, node_id: int, epoch: int, image: MetadataImage) -> MetadataImage:
        self.image = replace(
            image, version=self.image.version + 1, controller_id=node_id, controller_epoch=epoch
        )
        return self.image

    patch.setattr(Quorum, "write", planted)
    patch.setattr(Controller, "_check", lambda self: None)


def a_restart_forgets_the_tail(patch: pytest.MonkeyPatch) -> None:
    """A broker that comes back has lost its last batch, and does not report it."""
    listen = Broker.listen

    async def planted(self: Broker, *where: Any) -> None:
        """Cancellation: as the real one."""
        for copy in self.replicas:
            if copy.log.batches:
                copy.log.truncate(copy.log.batches[-1].base_offset)
        await listen(self, *where)

    patch.setattr(Broker, "listen", planted)


def eligible_replicas_stay_when_enough_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    """With a lower ``min.insync.replicas`` they may lead though they miss records."""
    patch.setattr(controller, "with_current_elr", lambda facts, config: facts)


BUGS = (
    the_high_watermark_waits_for_nobody,
    a_follower_keeps_what_its_leader_never_had,
    a_follower_is_in_sync_before_it_caught_up,
    whoever_is_up_is_elected,
    a_controller_that_was_replaced_goes_on,
    a_restart_forgets_the_tail,
    eligible_replicas_stay_when_enough_are_in_sync,
)
