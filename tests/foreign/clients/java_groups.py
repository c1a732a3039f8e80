"""Kafka's verifiable consumers in classic groups, and kafka-consumer-groups."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from tests.foreign.clients.java_tools import Said, file_of, tools, write
from tests.foreign.scene import Feature, Scene, equal, true, until

_ASSIGNORS = "org.apache.kafka.clients.consumer."


class Member:
    """A verifiable consumer beside others."""

    def __init__(self, scene: Scene, group: str, topic: str, *arguments: str) -> None:
        self._tools = tools(scene)
        quick = file_of("heartbeat.interval.ms=200\n", "consumer.properties")
        self._number = self._tools.start(
            "VerifiableConsumer",
            *("--group-id", group, "--topic", topic, "--verbose", "--command-config", quick),
            *("--session-timeout", "10000", *arguments),
        )

    def events(self) -> list[dict[str, Any]]:
        """The events that it reported."""
        said = self._tools.output(self._number)
        equal([said.status, said.err], [0, ""], "errors of the member")
        whole = said.out[: said.out.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def partitions(self) -> set[int]:
        """The partitions that it owns."""
        found: set[int] = set()
        for one in self.events():
            reported = {where["partition"] for where in one.get("partitions", ())}
            if one["name"] == "partitions_assigned":
                found |= reported
            elif one["name"] in ("partitions_revoked", "partitions_lost"):
                found -= reported
        return found

    @property
    def values(self) -> list[int]:
        """What it read."""
        return [int(one["value"]) for one in self.events() if one["name"] == "record_data"]

    @property
    def steps(self) -> list[tuple[str, int]]:
        """Assignments and revocations, with how many partitions."""
        return [
            (one["name"], len(one["partitions"]))
            for one in self.events()
            if one["name"].startswith("partitions_")
        ]

    def stop(self) -> Said:
        """Leave the group."""
        return self._tools.stop(self._number)


def _fill(scene: Scene, topic: str) -> list[int]:
    """Twenty numbers into the partitions of a topic."""
    write(scene, topic, (f"{n}\t{n}" for n in range(20)), "--reader-property", "parse.key=true")
    return list(range(20))


def groups_commit(scene: Scene) -> object:
    """The second member goes on where the first one committed."""
    topic, group = scene.topic("commit"), scene.name("commit")
    everything = _fill(scene, topic)
    arguments = ("--group-id", group, "--topic", topic, "--verbose", "--max-messages")
    seen: list[int] = []
    for count in (8, 12):
        said = tools(scene).run("VerifiableConsumer", *arguments, str(count))
        reported = [json.loads(line) for line in said.lines]
        seen += [int(one["value"]) for one in reported if one["name"] == "record_data"]
        commits = [one for one in reported if one["name"] == "offsets_committed"]
        true(commits and all(one["success"] for one in commits), f"commits: {commits}")
        equal(commits[-1]["offsets"][0]["offset"], len(seen))
    equal(seen, everything)
    return sorted({one["name"] for one in reported})


def _two_members(scene: Scene, stem: str, *arguments: str) -> list[tuple[str, int]]:
    topic, group = scene.topic(stem, 4), scene.name(stem)
    first = Member(scene, group, topic, *arguments)
    until(lambda: first.partitions == {0, 1, 2, 3}, "all partitions with the first member")
    second = Member(scene, group, topic, *arguments)
    until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each")
    equal(first.partitions | second.partitions, {0, 1, 2, 3})
    everything = _fill(scene, topic)
    until(lambda: sorted(first.values + second.values) == everything, "all records, once each")
    second.stop()
    until(lambda: first.partitions == {0, 1, 2, 3}, "all partitions with the first member again")
    steps = first.steps
    first.stop()
    return steps


def groups_rebalance(scene: Scene) -> object:
    """An eager group, by range and round robin."""
    seen = []
    for name in ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor"):
        steps = _two_members(scene, "eager", "--assignment-strategy", f"{_ASSIGNORS}{name}")
        true(("partitions_revoked", 4) in steps, f"all four given up for a while: {steps}")
        seen.append(name)
    return seen


def groups_cooperative(scene: Scene) -> object:
    """Each keeps what it has."""
    name = f"{_ASSIGNORS}CooperativeStickyAssignor"
    steps = _two_members(scene, "cooperative", "--assignment-strategy", name)
    given = [count for how, count in steps if how == "partitions_revoked" and count]
    equal(given, [2], "partitions given up, of four")
    return given


def groups_static(scene: Scene) -> object:
    """A member that comes back under its instance id keeps its partitions; none move."""
    topic, group = scene.topic("static", 4), scene.name("static")
    first = Member(scene, group, topic, "--group-instance-id", "one")
    until(lambda: len(first.partitions) == 4, "all with the first member")
    second = Member(scene, group, topic, "--group-instance-id", "two")
    until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each")
    had, steps = second.partitions, first.steps
    second.stop()
    again = Member(scene, group, topic, "--group-instance-id", "two")
    until(lambda: again.partitions == had, "what it had before")
    time.sleep(0.5)
    equal(first.steps, steps, "steps of the other member")
    head, *rows = _rows(_group(scene, "--describe", "--group", group, "--members", "--verbose"))
    instances = sorted(row[head.index("GROUP-INSTANCE-ID")] for row in rows)
    equal(instances, ["one", "two"])
    first.stop()
    again.stop()
    return head


def _group(scene: Scene, *arguments: str, refused: bool = False) -> Said:
    """Run kafka-consumer-groups, which reports errors by text and not by its exit status."""
    said = tools(scene).run("ConsumerGroupCommand", *arguments)
    equal("Error: " in said.out, refused, f"an error from {' '.join(arguments)}: {said.out}")
    return said


def _rows(said: Said) -> list[list[str]]:
    """The cells of the table that a tool printed."""
    lines = [line.split() for line in said.lines]
    start = next(i for i, words in enumerate(lines) if words[0] == "GROUP")
    return lines[start:]


def _emptied(scene: Scene, stem: str) -> tuple[str, str]:
    """A topic and a group that read its 20 records, committed and left."""
    topic, group = scene.topic(stem), scene.name(stem)
    _fill(scene, topic)
    arguments = ("--group-id", group, "--topic", topic, "--max-messages", "20")
    tools(scene).run("VerifiableConsumer", *arguments)
    return topic, group


def groups_list(scene: Scene) -> object:
    """All, with states and types; kafka-groups."""
    topic, empty = _emptied(scene, "listed")
    busy = scene.name("busy")
    member = Member(scene, busy, topic)
    until(lambda: member.partitions, "a busy group")
    true({empty, busy} <= set(_group(scene, "--list").lines), "both among all")
    states = {row[0]: row[1:] for row in _rows(_group(scene, "--list", "--state", "--type"))}
    only_empty = {row[0] for row in _rows(_group(scene, "--list", "--state", "empty"))}
    true(empty in only_empty and busy not in only_empty, "only the empty ones")
    groups = {row[0]: row[1:] for row in _rows(tools(scene).run("GroupsCommand", "--list"))}
    member.stop()
    return {"empty": [states[empty], groups[empty]], "busy": [states[busy], groups[busy]]}


def groups_describe(scene: Scene) -> object:
    """Offsets, members and state of a busy group, an empty one, an unknown one."""
    topic, empty = _emptied(scene, "described")
    busy = scene.name("busy")
    member = Member(scene, busy, topic)
    until(lambda: len(member.values) == 20, "a busy group that has read all")
    seen: dict[str, object] = {}
    for view in ("--offsets", "--members", "--state"):
        for what, group in (("busy", busy), ("empty", empty)):
            said = _group(scene, "--describe", "--group", group, view)
            found = [words for line in said.lines if (words := line.split())]
            seen[f"{what} {view}"] = [
                [_reported(word, topic, group) for word in words] for words in found
            ]
    member.stop()
    missing = _group(scene, "--describe", "--group", "foreign-missing", refused=True)
    seen["missing"] = missing.lines
    every = _group(scene, "--describe", "--all-groups", "--offsets")
    true(empty in every.out, "the group among all")
    return seen


def _reported(word: str, topic: str, group: str) -> str:
    word = word.replace(topic, "TOPIC").replace(group, "GROUP")
    if word.startswith("consumer-GROUP") or ":" in word or re.fullmatch(r"\(\d+\)", word):
        return "ID"
    return word


def groups_offsets(scene: Scene) -> object:
    """reset-offsets by every way, as a plan and for good; delete-offsets."""
    topic, group = _emptied(scene, "offsets")
    where = ("--group", group, "--topic", topic)

    def reset(*how: str) -> str:
        return _rows(_group(scene, "--reset-offsets", *where, *how))[1][3]

    plan = reset("--to-earliest", "--dry-run")
    tries = {
        "earliest": ("--to-earliest",),
        "forward": ("--shift-by", "7"),
        "offset": ("--to-offset", "12"),
        "beyond": ("--to-offset", "999"),
        "back": ("--shift-by", "-3"),
        "current": ("--to-current",),
        "date": ("--to-datetime", "2020-01-01T00:00:00.000"),
        "duration": ("--by-duration", "PT0S"),
        "latest": ("--to-latest",),
    }
    seen = {name: reset(*how, "--execute") for name, how in tries.items()}
    expected = ["0", "7", "12", "20", "17", "17", "0", "20", "20"]
    equal(list(seen.values()), expected)
    listed = file_of(f"{topic},0,5\n", f"{group}.csv")
    said = _group(scene, "--reset-offsets", "--group", group, "--from-file", listed, "--execute")
    equal(_rows(said)[1][3], "5")
    exported = _group(scene, "--reset-offsets", *where, "--to-current", "--export", "--dry-run")
    member = Member(scene, group, topic)
    until(lambda: member.values == list(range(5, 20)), "records from the offset that was set")
    again = ("--reset-offsets", *where, "--to-earliest", "--execute")
    busy = _group(scene, *again, refused=True)
    kept = _group(scene, "--delete-offsets", *where, refused=True)
    member.stop()
    gone = _group(scene, "--delete-offsets", *where)
    fresh = scene.name("fresh")
    made = _group(scene, "--reset-offsets", "--group", fresh, "--topic", topic, "--to-earliest",
                  "--execute")  # fmt: skip
    return {
        **seen,
        "plan": plan,
        "exported": [line.partition(",")[2] for line in exported.lines],
        "busy": [" ".join(line.split()) for line in busy.lines],
        "kept": [" ".join(line.split()) for line in kept.lines],
        "gone": [" ".join(line.split()) for line in gone.lines],
        "made": [line.split()[1:] for line in made.lines],
    }


def groups_delete(scene: Scene) -> object:
    """An empty one, a busy one, an unknown one."""
    topic, group = _emptied(scene, "deleted")
    done = _group(scene, "--delete", "--group", group)
    until(lambda: group not in _group(scene, "--list").lines, "the group is gone")
    again = _group(scene, "--delete", "--group", group, refused=True)
    busy = scene.name("busy")
    member = Member(scene, busy, topic)
    until(lambda: member.partitions, "a busy group")
    kept = _group(scene, "--delete", "--group", busy, refused=True)
    member.stop()
    return [said.lines[:3] for said in (done, again, kept)]


PLAYED: tuple[Feature, ...] = (
    groups_commit,
    groups_rebalance,
    groups_cooperative,
    groups_static,
    groups_list,
    groups_describe,
    groups_offsets,
    groups_delete,
)
