"""Groups through any history: members join, leave, stall and misbehave; coordinators change.

A model remembers each member's responses; the invariants below must hold at each step, and after
each history a coordinator that takes over has the same state.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kclient.error_codes import ErrorCode
from kclient.testing.groups.classic_group import State
from tests.unit.testing.group_rig import Rig

NONE = ErrorCode.NONE
PROTOCOLS = some.sampled_from([("range",), ("range", "roundrobin"), ("roundrobin", "range")])
INSTANCES = some.sampled_from([None, None, "i1", "i2"])


class Peer:
    """A member's own view: its requests and their responses."""

    def __init__(self) -> None:
        self.member_id = ""
        self.instance: str | None = None
        self.generation = -1
        self.protocol = ""
        self.leads = False
        self.reported: list[str] = []
        self.join: list[Any] = []
        self.sync: list[Any] = []
        self.asked = (-1, "")


class Histories(RuleBasedStateMachine):
    """One group, up to four members, three kinds of members."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(initial_rebalance_delay_ms=500, max_size=4)
        self.peers: list[Peer] = []
        self.committed: dict[int, int] = {}
        self.highest = 0
        self.assigned: dict[tuple[int, str], bytes] = {}

    # Actions of members

    @precondition(lambda self: len(self.peers) < 6)
    @rule(instance=INSTANCES, protocols=PROTOCOLS, version=some.sampled_from([3, 5, 9]))
    def arrive(self, instance: str | None, protocols: tuple[str, ...], version: int) -> None:
        peer = Peer()
        peer.instance = instance if version >= 5 else None
        self.peers.append(peer)
        answers = self.rig.join(
            instance=peer.instance, protocols=protocols, version=version, rebalance_ms=8_000
        )
        if answers and answers[0].error_code == ErrorCode.MEMBER_ID_REQUIRED:
            peer.member_id = answers[0].member_id
        else:
            peer.join = answers

    @precondition(lambda self: self.peers)
    @rule(data=some.data(), protocols=PROTOCOLS, metadata=some.sampled_from([b"m", b"n"]))
    def rejoin(self, data: Any, protocols: tuple[str, ...], metadata: bytes) -> None:
        peer = self.pick(data)
        peer.join = self.rig.join(
            peer.member_id,
            instance=peer.instance,
            protocols=protocols,
            metadata=metadata,
            rebalance_ms=8_000,
        )

    @precondition(lambda self: self.peers)
    @rule(data=some.data())
    def ask_for_assignment(self, data: Any) -> None:
        peer = self.pick(data)
        given = {}
        if peer.leads:
            given = {one: f"{peer.generation}-{one}".encode() for one in peer.reported}
        peer.asked = (peer.generation, peer.member_id)
        peer.sync = self.rig.sync(
            peer.generation,
            peer.member_id,
            instance=peer.instance,
            protocol=peer.protocol or "range",
            **given,
        )

    @precondition(lambda self: self.peers)
    @rule(data=some.data())
    def live(self, data: Any) -> None:
        peer = self.pick(data)
        code = self.rig.beat(peer.generation, peer.member_id, peer.instance)
        group = self.rig.shard.groups.get("g")
        member = None if group is None else group.members.get(peer.member_id)
        if code is NONE:
            assert group is not None and member is not None
            assert group.generation == peer.generation
            assert group.state in (State.STABLE, State.COMPLETING_REBALANCE)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            assert group is not None and group.state is State.PREPARING_REBALANCE

    @precondition(lambda self: self.peers)
    @rule(data=some.data())
    def go(self, data: Any) -> None:
        peer = self.pick(data)
        self.rig.leave(peer.member_id)
        self.peers.remove(peer)

    @precondition(lambda self: self.peers)
    @rule(data=some.data())
    def vanish(self, data: Any) -> None:
        self.peers.remove(self.pick(data))

    @precondition(lambda self: self.peers)
    @rule(data=some.data(), offset=some.integers(0, 99), partition=some.integers(0, 2))
    def commit(self, data: Any, offset: int, partition: int) -> None:
        peer = self.pick(data)
        (code,) = self.rig.commit(
            offset,
            partition=partition,
            member_id=peer.member_id,
            instance=peer.instance,
            generation=peer.generation,
        )
        if code is NONE:
            self.committed[partition] = offset

    @rule(seconds=some.sampled_from([0.0, 0.5, 2.0, 5.0, 9.0, 20.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.rig.pass_time(seconds)

    @rule()
    def take_over(self) -> None:
        """Another broker coordinates: waiting members look for it, stable members stay."""
        old = self.rig
        before = {
            (name, one.member_id, group.generation, one.assignment)
            for name, group in old.shard.groups.items()
            for one in group.members.values()
            if group.state is State.STABLE
        }
        self.rig = old.reload()
        old.shard.unload(old.moment)
        after = {
            (name, one.member_id, group.generation, one.assignment)
            for name, group in self.rig.shard.groups.items()
            for one in group.members.values()
        }
        assert before <= after
        assert not len(old.deadlines)

    def pick(self, data: Any) -> Peer:
        return self.peers[data.draw(some.integers(0, len(self.peers) - 1))]

    # Invariants

    @invariant()
    def members_believe_what_is_reported(self) -> None:
        for peer in self.peers:
            assert len(peer.join) <= 1
            for answer in peer.join:
                if answer.error_code == NONE:
                    peer.member_id, peer.generation = answer.member_id, answer.generation_id
                    peer.protocol = answer.protocol_name
                    peer.leads = answer.leader == answer.member_id and bool(answer.members)
                    peer.reported = [one.member_id for one in answer.members]
                    if peer.leads and not answer.skip_assignment:
                        assert len(set(peer.reported)) == len(peer.reported)
                        assert peer.member_id in peer.reported
                elif answer.error_code in (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.FENCED_INSTANCE_ID,
                ):
                    peer.member_id, peer.generation, peer.leads = "", -1, False
            peer.join = [] if peer.join else peer.join

    @invariant()
    def a_generation_has_one_assignment_per_member(self) -> None:
        for peer in self.peers:
            generation, member_id = peer.asked
            assert len(peer.sync) <= 1
            for answer in peer.sync:
                if answer.error_code != NONE or not answer.assignment:
                    continue
                made, _, owner = answer.assignment.decode().partition("-")
                assert int(made) <= generation
                known = self.assigned.setdefault((generation, member_id), answer.assignment)
                assert known == answer.assignment
                assert peer.instance is not None or (int(made), owner) == peer.asked
            peer.sync = [] if peer.sync else peer.sync

    @invariant()
    def the_group_is_in_order(self) -> None:
        group = self.rig.shard.groups.get("g")
        if group is None:
            return
        assert group.generation >= 0
        assert set(group.static_members.values()) <= set(group.members)
        assert not group.pending_members & set(group.members)
        assert group.pending_syncs <= set(group.members)
        assert (group.leader is None) == (not group.members) or group.leader in group.members
        if group.state in (State.EMPTY,):
            assert not group.members
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            assert not any(one.awaits_join for one in group.members.values())
            assert group.protocol_name is not None
            for one in group.members.values():
                one.metadata(group.protocol_name)
        if group.state is not State.COMPLETING_REBALANCE:
            assert not any(one.awaits_sync for one in group.members.values())

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Each member has a session or waits; join and sync deadlines exist only while needed."""
        deadlines, group = self.rig.deadlines, self.rig.shard.groups.get("g")
        if group is None:
            return
        for member_id in (*group.members, *group.pending_members):
            member = group.members.get(member_id)
            due = ("session", "g", member_id) in deadlines
            assert due or (member is not None and (member.awaits_join or member.awaits_sync))
        assert (("join", "g") in deadlines) == (group.state is State.PREPARING_REBALANCE)
        assert (("sync", "g") in deadlines) == bool(group.pending_syncs)

    @invariant()
    def committed_offsets_are_read(self) -> None:
        (found,) = self.rig.fetch()
        assert found == {("t", index): offset for index, offset in self.committed.items()}

    def teardown(self) -> None:
        """Every member is silent: in the end no deadline is left."""
        self.peers.clear()
        self.rig.pass_time(2_000)
        group = self.rig.shard.groups.get("g")
        assert group is None or group.state is State.EMPTY
        assert not len(self.rig.deadlines)
        again = self.rig.reload()
        assert again.fetch() == self.rig.fetch()


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestHistories = Histories.TestCase
