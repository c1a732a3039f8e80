"""One group and what happens to it: members come, leave, die and freeze, and it must recover.

``play`` and the group storm decide what happens next. After each blow `settled` waits until the
group is whole: the coordinator and the members agree on the owners, every live member has joined,
each partition is owned once, and each owner has read a record that was written since.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mixed.broker_view import GroupView, Seen
from tests.mixed.judge import Absence, repeated, silence, wrongs
from tests.mixed.ledger import Ledger
from tests.mixed.metronome import Metronome
from tests.mixed.process import Member, Settings
from tests.mixed.writer import Writer

GRACE = 5.0
"""Seconds over the session timeout that a recovery may take."""
PATIENCE = 40.0
"""Seconds over it after which a group counts as stuck."""
_LOOK = 0.1
_DRAIN = 30.0
_ANSWER = 1.0
INEXACT = ("java_verifiable",)
"""Clients that report what they own, but not since when."""


class Stuck(AssertionError):
    """The group didn't become whole; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Blow:
    """Something that happened to a group, and how long its recovery took.

    Attributes:
        held: Seconds by which the machine delayed a thread meanwhile.
        bounded: Whether the bound of recoveries applies: not where a program has to start first.
        moved: How often a partition was assigned to a member meanwhile; eager rebalances reassign
            all of them.
    """

    what: str
    seconds: float
    held: float
    bounded: bool
    moved: int = 0


@dataclass(slots=True)
class Outcome:
    """The outcome of a group.

    Attributes:
        repeated: Records that were read more than once.
        led: Rebalances that a member of kclient led.
        silence: Seconds; see `judge.silence`.
        errors: Errors that members reported.
    """

    group: str
    assignor: str
    session: float
    blows: list[Blow] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    records: int = 0
    repeated: int = 0
    led: int = 0
    silence: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)

    def slow(self) -> list[str]:
        """The blows that took longer than they may."""
        limit = self.session + GRACE
        return [
            f"{blow.what}: {blow.seconds:.1f} s, allowed are {limit:g} and {blow.held:.1f} for a "
            "machine that was held up"
            for blow in self.blows
            if blow.bounded and blow.seconds > limit + blow.held
        ]

    def __str__(self) -> str:
        lines = [
            f"{self.assignor}: {self.records:,} records, {self.repeated:,} read again, "
            f"{self.led} rebalances led by kclient, "
            f"no owner silent for longer than {self.silence:.1f} s",
            *(f"  {one.seconds:5.1f} s, {one.moved:2} given  {one.what}" for one in self.blows),
            *(f"  {count} x {text}" for text, count in self.errors.most_common(12)),
            *(f"WRONG {one}" for one in [*self.wrong[:20], *self.slow()]),
        ]
        return "\n".join(lines)


class Scenario:
    """A running group.

    Args:
        settings: Of all its members.
        partitions: How many the topic has.
        writer: Writes to it all the while; owned by the caller, as it may serve several groups.
        folder: For the output of members.
        emit: Is given a line now and then.

    Attributes:
        members: The live ones, by name.
        view: The group as its coordinator describes it.
    """

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        writer: Writer,
        metronome: Metronome,
        folder: Path,
        emit: Callable[[str], object],
    ) -> None:
        self.members: dict[str, Member] = {}
        self.ledger = Ledger()
        self.outcome = Outcome(settings.group, settings.assignor, settings.session)
        self._settings = settings
        self._partitions = frozenset(range(partitions))
        self._writer = writer
        self._metronome = metronome
        self._folder = folder
        self._emit = emit
        self.view = GroupView(settings.bootstrap, settings.group, settings.topic)
        self._absences: list[Absence] = []
        self._tellers: dict[str, str] = {}
        self._count: Counter[str] = Counter()

    async def start(self, client: str, way: str = "") -> Member:
        """Start a member."""
        self._count[client] += 1
        name = f"{client}-{self._count[client]}"
        member = Member(name, client, self._settings, self.ledger, self._folder, way)
        if client != "java_console":
            self._tellers[name] = client
        await member.start()
        self.members[name] = member
        return member

    async def up(self, members: Sequence[Member]) -> float:
        """Wait for the programs of members to run; return when the last one did.

        Raises:
            Stuck: One ended before.
        """
        for member in members:
            while member.name not in self.ledger.up:
                if not member.alive:
                    raise Stuck(f"{member} didn't start:\n{member.last_words()}")
                await asyncio.sleep(_LOOK)
        return max(self.ledger.up[member.name] for member in members)

    async def leave(self, member: Member) -> None:
        """Have a member leave; it has to end well.

        Clients other than kclient leave before they report that they own nothing, or don't report
        it; and a rebalance may still give them partitions between this and their leaving.
        """
        if member.client != "kclient":
            self._absences.append(Absence(member.name, time.monotonic(), leaves=True))
        del self.members[member.name]
        try:
            status = await member.leave()
        except TimeoutError as error:
            self.outcome.wrong.append(f"{error}:\n{member.last_words()}")
            return
        well = (0, 130, 143) if member.client.startswith("java") else (0,)
        if status not in well:
            self.outcome.wrong.append(f"{member} ended with {status}:\n{member.last_words()}")

    async def kill(self, member: Member) -> None:
        """Kill a member."""
        del self.members[member.name]
        await member.kill()

    def freeze(self, member: Member) -> None:
        """Stop a member; until it is thawed the group has to do without it."""
        self._absences.append(Absence(member.name, time.monotonic()))
        member.freeze()

    async def settled(
        self, what: str, since: float, *, bounded: bool = True, other: Member | None = None
    ) -> None:
        """Wait until the group is whole again.

        Args:
            what: Names what has happened.
            since: When it happened, on the monotonic clock.
            bounded: Whether the bound of recoveries is for it.

        Raises:
            Stuck: It isn't for long.
        """
        deadline = since + self._settings.session + PATIENCE
        while True:
            seen = await asyncio.to_thread(self.view.look)
            now = time.monotonic()
            lacks = self._lacks(seen, since)
            if not lacks:
                break
            if now > deadline or any(not one.alive for one in self.members.values()):
                raise Stuck(f"{what}: after {now - since:.1f} s {lacks}\n{await self._words()}")
            await asyncio.sleep(_LOOK)
        self.outcome.blows.append(
            Blow(
                what,
                now - since,
                self._metronome.held(since, now),
                bounded,
                self.ledger.moved(since),
            )
        )
        self._emit(f"{self._settings.assignor}: {now - since:5.1f} s  {what}")

    async def drained(self) -> None:
        """Wait until all that the writer wrote was read; it must have ended.

        Raises:
            Stuck: It isn't for long.
        """
        deadline = time.monotonic() + _DRAIN
        while True:
            ends, reads = self._writer.ends(), self.ledger.reads
            behind = [
                f"partition {index} up to {max((run.last for run in reads[index]), default=-1)} "
                f"of {end - 1}"
                for index, end in ends.items()
                if max((run.last for run in reads[index]), default=-1) < end - 1
            ]
            if not behind:
                return
            if time.monotonic() > deadline:
                raise Stuck(f"nobody reads on: {'; '.join(behind)}\n{await self._words()}")
            await asyncio.sleep(_LOOK)

    async def finish(self) -> Outcome:
        """Have all members leave, one after the other, and judge."""
        for member in list(self.members.values()):
            await self.leave(member)
        return self.judged()

    def judged(self) -> Outcome:
        """Judge, and return the outcome."""
        self.ledger.close()
        outcome, ends = self.outcome, self._writer.ends()
        exact = [name for name, client in self._tellers.items() if client not in INEXACT]
        outcome.wrong += wrongs(self.ledger, ends, self._absences, exact)
        outcome.records = sum(ends.values())
        spans = [span for span in self.ledger.spans if span.member in exact]
        outcome.silence = silence(spans, self._absences)
        outcome.led = self.ledger.led
        outcome.repeated = repeated(self.ledger, ends)
        for _, name, text in self.ledger.errors:
            outcome.errors[f"{name.rpartition('-')[0]}: {text[:160]}"] += 1
        return outcome

    async def abandon(self) -> None:
        """Kill whatever runs."""
        self.view.close()
        for member in self.members.values():
            await member.kill()

    def _lacks(self, seen: Seen | None, since: float) -> str:
        """What is missing to a whole group; empty if nothing."""
        awake = {name: one for name, one in self.members.items() if not one.frozen}
        dead = [str(one) for one in awake.values() if not one.alive]
        if dead:
            return f"{dead} ended"
        if seen is None:
            return "nobody knows the group"
        if seen.state != "Stable" or set(seen.owners) != set(awake):
            return f"it is {seen.state} with {sorted(seen.owners)}, but there are {sorted(awake)}"
        given = Counter(part for owned in seen.owners.values() for part in owned)
        if given != Counter(self._partitions):
            return f"the leader gave {dict(seen.owners)}"
        for name, owned in seen.owners.items():
            says = self.ledger.owned(name)
            if name in self._tellers and says != owned:
                return f"{name} was given {sorted(owned)} and says {says and sorted(says)}"
            for partition in owned:
                if not self._reads(name, partition, since):
                    return f"{name} owns partition {partition} and reads nothing new of it"
        return ""

    def _reads(self, member: str, partition: int, since: float) -> bool:
        """Whether a member has read something that was written since."""
        run = self.ledger.latest.get((member, partition))
        if run is None or run.at < since:
            return False
        fresh = self._writer.fresh
        latest = range(max(run.first, run.last - 3), run.last + 1)
        return any(fresh(partition, at, since) for at in latest)

    async def _words(self) -> str:
        """The members' last output, and the health of those of kclient."""
        for one in self.members.values():
            one.ask()
        await asyncio.sleep(_ANSWER)
        lines = []
        for one in self.members.values():
            owned = self.ledger.owned(one.name)
            lines.append(f"--- {one}, owns {owned and sorted(owned)}\n{one.last_words()}")
        return "\n".join(lines)
