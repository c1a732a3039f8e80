"""kcat, the command line tool on librdkafka: it produces, consumes and lists; it has no admin."""

from __future__ import annotations

import atexit
import json
import re
import signal
import subprocess
import threading
from typing import Any

from tests.foreign.scene import (
    FIRST_TIME,
    PATIENCE,
    Feature,
    Scene,
    by_name,
    equal,
    play,
    true,
    until,
)
from tests.foreign.transactions import ENDS, expected, values
from tests.interop.peers.sample import CODECS
from tests.support.class_path import require

_KCAT = require("kcat", "install kcat")


def where(scene: Scene) -> list[str]:
    """Arguments that say where the brokers are, and how to log in."""
    login = {} if scene.login is None else scene.login.librdkafka()
    said = [word for name, value in login.items() for word in ("-X", f"{name}={value}")]
    return ["-b", scene.bootstrap, *said]


def run(scene: Scene, *arguments: str, stdin: bytes = b"", status: int | None = 0) -> str:
    """Run kcat to its end; what it wrote."""
    done = subprocess.run(
        [_KCAT, *where(scene), *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    if status is not None and done.returncode != status:
        raise AssertionError(f"kcat {arguments} exited {done.returncode}: {done.stderr.decode()}")
    return done.stdout.decode() + (done.stderr.decode() if status != 0 else "")


def write(scene: Scene, topic: str, lines: list[str], *arguments: str) -> None:
    """Write lines as records."""
    text = "".join(f"{line}\n" for line in lines).encode()
    run(scene, "-P", "-t", topic, "-p", "0", *arguments, stdin=text)


def read(scene: Scene, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Read to the end of the partitions; records as in kcat's JSON."""
    said = run(scene, "-C", "-q", "-J", "-e", "-t", topic, *arguments)
    return [json.loads(line) for line in said.splitlines()]


def cluster_describe(scene: Scene) -> object:
    """Metadata as JSON and as text."""
    found = json.loads(run(scene, "-L", "-J"))
    equal(len(found["brokers"]), scene.brokers, "brokers")
    controller = found["controllerid"]
    true(controller in {one["id"] for one in found["brokers"]}, "a controller among them")
    true(f"{scene.brokers} brokers:" in run(scene, "-L"), "the same as text")
    return sorted(found)


def topics_list(scene: Scene) -> object:
    """One, all, and one that isn't there."""
    topic = scene.topic("list", 2)
    every = json.loads(run(scene, "-L", "-J"))["topics"]
    true(topic in {one["topic"] for one in every}, "the topic among all")
    (one,) = json.loads(run(scene, "-L", "-J", "-t", topic))["topics"]
    return sorted(one)


def topics_describe(scene: Scene) -> object:
    """Leaders, replicas, those in sync."""
    topic = scene.topic("describe", 3)
    (found,) = json.loads(run(scene, "-L", "-J", "-t", topic))["topics"]
    equal([one["partition"] for one in found["partitions"]], [0, 1, 2])
    for one in found["partitions"]:
        equal([len(one["replicas"]), len(one["isrs"])], [scene.replicas] * 2)
        true(one["leader"] in {replica["id"] for replica in one["replicas"]}, "a leader")
    return sorted(found["partitions"][0])


def offsets_list(scene: Scene) -> object:
    """By time, and both ends."""
    topic = scene.topic("offsets")
    write(scene, topic, ["0", "1", "2"])
    time = read(scene, topic)[1]["ts"]
    seen = {}
    for name, asked in (("earliest", -2), ("latest", -1), ("time", time), ("late", time + 10**6)):
        said = run(scene, "-Q", "-t", f"{topic}:0:{asked}").strip()
        seen[name] = int(re.fullmatch(r".* \[0\] offset (-?\d+)", said).group(1))  # type: ignore[union-attr]
    equal([seen["earliest"], seen["latest"], seen["late"]], [0, 3, -1])
    true(seen["time"] in (0, 1), "an offset of that time")
    del seen["time"]
    return seen


def produce_records(scene: Scene) -> object:
    """Keys, nulls, headers."""
    topic = scene.topic("records")
    text = "k:plain\n:empty key\nnull value:\nключ:grüße\n".encode()
    headers = ("-H", "one=1", "-H", "one=2", "-H", "empty=")
    run(scene, "-P", "-t", topic, "-Z", "-K", ":", *headers, stdin=text)
    run(scene, "-P", "-t", topic, stdin=b"neither key nor header\n")
    found = read(scene, topic)
    seen = [[one["key"], one["payload"], one.get("headers")] for one in found]
    reported = ["one", "1", "one", "2", "empty", ""]
    equal(
        seen,
        [
            ["k", "plain", reported],
            [None, "empty key", reported],
            ["null value", None, reported],
            ["ключ", "grüße", reported],
            [None, "neither key nor header", None],
        ],
    )
    equal([one["offset"] for one in found], list(range(5)))
    return seen


def produce_codecs(scene: Scene) -> object:
    """All five."""
    for codec in CODECS:
        topic = scene.topic(f"codec-{codec}")
        lines = [f"{n}" * 100 for n in range(100)]
        write(scene, topic, lines, "-X", f"compression.codec={codec}")
        equal([one["payload"] for one in read(scene, topic)], lines, codec)
    return list(CODECS)


def produce_idempotent(scene: Scene) -> object:
    """Small batches, several in flight."""
    topic = scene.topic("idempotent")
    lines = [f"{n}" for n in range(3000)]
    write(scene, topic, lines, "-X", "enable.idempotence=true", "-X", "batch.num.messages=50")
    equal([one["payload"] for one in read(scene, topic)], lines)
    return len(lines)


def produce_acks(scene: Scene) -> object:
    """Unacknowledged, by the leader, by all."""
    for acks in ("0", "1", "-1"):
        topic = scene.topic("acks")
        write(scene, topic, ["a", "b"], "-X", f"acks={acks}")
        until(lambda topic=topic: len(read(scene, topic)) == 2, f"records with acks={acks}")
    return "0, 1, all"


def produce_large(scene: Scene) -> object:
    """Records of nearly 1 MB."""
    topic = scene.topic("large")
    lines = [str(n) * 990_000 for n in range(5)]
    write(scene, topic, lines)
    found = [one["payload"] for one in read(scene, topic)]
    true(found == lines, "the records came back as they were")
    return [len(one) for one in found]


def produce_refuse(scene: Scene) -> object:
    """Too large for the topic; a partition that isn't there."""
    topic = scene.topic("refuse", max_message_bytes=1000)
    large = run(scene, "-P", "-t", topic, stdin=b"x" * 5000 + b"\n", status=None)
    true("Message size too large" in large, large)
    other = run(scene, "-P", "-t", topic, "-p", "7", stdin=b"x\n", status=None)
    true("Unknown partition" in other, other)
    write(scene, topic, ["fits"])
    return [one["payload"] for one in read(scene, topic)]


def produce_auto_create(scene: Scene) -> object:
    """The first record makes the topic."""
    topic = scene.name("auto")
    run(scene, "-P", "-t", topic, stdin=b"first\n")
    return [one["payload"] for one in read(scene, topic)]


def consume_assign(scene: Scene) -> object:
    """All partitions and one, both isolation levels."""
    topic = scene.topic("assign", 2)
    for partition in ("0", "1"):
        run(scene, "-P", "-t", topic, "-p", partition, stdin=b"a\nb\nc\n")
    for level in ("read_uncommitted", "read_committed"):
        equal(len(read(scene, topic, "-X", f"isolation.level={level}")), 6, level)
    equal({one["partition"] for one in read(scene, topic, "-p", "1")}, {1})
    return 6


def consume_seek(scene: Scene) -> object:
    """From an offset, from the end backwards, by time."""
    topic = scene.topic("seek")
    write(scene, topic, [f"{n}" for n in range(10)])
    seen = {
        where: [one["offset"] for one in read(scene, topic, "-o", where)]
        for where in ("beginning", "7", "-2", "end", f"s@{FIRST_TIME}", f"s@{FIRST_TIME * 2}")
    }
    every = list(range(10))
    equal(list(seen.values()), [every, [7, 8, 9], [8, 9], [], every, []])
    return seen


def consume_reset(scene: Scene) -> object:
    """An offset out of range."""
    topic = scene.topic("reset")
    write(scene, topic, ["0", "1"])
    seen = {
        policy: [
            one["offset"]
            for one in read(scene, topic, "-o", "100", "-X", f"auto.offset.reset={policy}")
        ]
        for policy in ("earliest", "latest")
    }
    equal(seen, {"earliest": [0, 1], "latest": []})
    failed = run(scene, "-C", "-t", topic, "-p", "0", "-o", "100", "-e", "-X",
                 "auto.offset.reset=error", status=None)  # fmt: skip
    true("out of range" in failed, failed)
    return seen


class Member:
    """``kcat -G`` beside others."""

    def __init__(self, scene: Scene, group: str, topic: str, *arguments: str) -> None:
        settings = ("heartbeat.interval.ms=200", "session.timeout.ms=10000",
                    "auto.offset.reset=earliest")  # fmt: skip
        words = [word for one in settings for word in ("-X", one)]
        self._process = subprocess.Popen(
            [_KCAT, *where(scene), "-u", *words, *arguments, "-G", group, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.kill)  # if what it is for fails
        self.steps: list[str] = []
        self.values: list[int] = []
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._read, daemon=True),
        ]
        for one in self._threads:
            one.start()

    @property
    def partitions(self) -> set[int]:
        """The partitions that it owns, from its output."""
        found: set[int] = set()
        for step in list(self.steps):
            named = {int(number) for number in re.findall(r" \[(\d+)\]", step)}
            if "incremental" in step:
                found = found | named if "incremental assignment" in step else found - named
            else:
                found = named if "assigned" in step else set()
        return found

    def stop(self) -> None:
        """Leave the group."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        for one in self._threads:
            one.join(PATIENCE)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "rebalanced" in line:
                self.steps.append(line.strip())

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.values.extend(int(line) for line in self._process.stdout)


def groups_commit(scene: Scene) -> object:
    """The second member goes on where the first one committed."""
    topic, group = scene.topic("commit"), scene.name("group")
    write(scene, topic, [f"{n}" for n in range(20)])
    found = []
    for count in ("8", "12"):
        said = run(scene, "-c", count, "-q", "-X", "auto.offset.reset=earliest", "-G", group, topic)
        found.append([int(line) for line in said.splitlines()])
    equal(found, [list(range(8)), list(range(8, 20))])
    return [len(one) for one in found]


def _two_members(scene: Scene, stem: str, *arguments: str) -> list[str]:
    topic, group = scene.topic(stem, 4), scene.name(stem)
    first = Member(scene, group, topic, *arguments)
    until(lambda: first.partitions == {0, 1, 2, 3}, "all partitions with the first member")
    second = Member(scene, group, topic, *arguments)
    until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each")
    equal(first.partitions | second.partitions, {0, 1, 2, 3})
    for partition in range(4):
        text = "".join(f"{partition * 10 + n}\n" for n in range(5)).encode()
        run(scene, "-P", "-t", topic, "-p", str(partition), stdin=text)
    everything = sorted(p * 10 + n for p in range(4) for n in range(5))
    until(lambda: sorted(first.values + second.values) == everything, "all records, once each")
    second.stop()
    until(lambda: first.partitions == {0, 1, 2, 3}, "all partitions with the first member again")
    first.stop()
    return first.steps


def groups_rebalance(scene: Scene) -> object:
    """An eager group."""
    steps = _two_members(scene, "eager", "-X", "partition.assignment.strategy=range")
    true(any("revoked" in one for one in steps), f"partitions given up: {steps}")
    return "range"


def groups_cooperative(scene: Scene) -> object:
    """Each keeps what it has."""
    steps = _two_members(
        scene, "cooperative", "-X", "partition.assignment.strategy=cooperative-sticky"
    )
    given = [one for one in steps if "incremental revoke" in one]
    equal(len(re.findall(r" \[\d+\]", given[0])), 2, "partitions given up, of four")
    return 2


def groups_static(scene: Scene) -> object:
    """A member that comes back under its instance id has what it had."""
    topic, group = scene.topic("static", 4), scene.name("static")
    first = Member(scene, group, topic, "-X", "group.instance.id=one")
    until(lambda: len(first.partitions) == 4, "all with the first member")
    second = Member(scene, group, topic, "-X", "group.instance.id=two")
    until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each")
    had, steps = second.partitions, list(first.steps)
    second.stop()
    second = Member(scene, group, topic, "-X", "group.instance.id=two")
    until(lambda: second.partitions == had, "what it had before")
    equal(first.steps, steps, "steps of the other member")
    first.stop()
    second.stop()
    return sorted(had)


_LINES, _LINE = 64, 1024


class _Open:
    """kcat in the middle of a transaction: it commits at the end of its input.

    It hands lines on in blocks of some kilobytes: these 64 lines end with one, and it waits for the
    next. Only there it aborts when it is interrupted.
    """

    def __init__(self, scene: Scene, topic: str, name: str, word: str) -> None:
        self._process = subprocess.Popen(
            [_KCAT, *where(scene), "-P", "-t", topic, "-p", "0", *_transactional(name)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        atexit.register(self._process.kill)  # if what it is for fails
        assert self._process.stdin is not None
        line = f"{word:-<{_LINE - 1}}\n".encode()
        self._process.stdin.write(line * _LINES)
        self._process.stdin.flush()

        def whole() -> bool:
            found = read(scene, topic, "-X", "isolation.level=read_uncommitted")
            return sum(one["payload"] == line.decode().strip() for one in found) == _LINES

        until(whole, "its records")

    def end(self, commit: bool) -> tuple[int, str]:
        """End its input, which commits, or interrupt it; its status and words."""
        if not commit:
            self._process.send_signal(signal.SIGINT)
        said = self._process.communicate(timeout=PATIENCE)[1].decode()
        return self._process.returncode, said


def _transactional(name: str) -> tuple[str, ...]:
    return ("-X", f"transactional.id={name}", "-m", f"{PATIENCE:.0f}")


def _words(scene: Scene, topic: str, level: str) -> list[str]:
    """The first words of the records, each once where it repeats."""
    found = [
        one["payload"].partition("--")[0]
        for one in read(scene, topic, "-X", f"isolation.level={level}")
    ]
    return [word for n, word in enumerate(found) if found[n - 1 : n] != [word]]


def _await_words(scene: Scene, topic: str, words: list[str]) -> None:
    """Wait for what was committed: kcat ends before the markers are written."""
    until(lambda: _words(scene, topic, "read_committed") == words, f"committed: {words}")


def transactions_commit(scene: Scene) -> object:
    """Five, one after the other; a sixth, open one holds ``read_committed`` back."""
    topic, name = scene.topic("transactions"), scene.name("id")
    for number, commit in enumerate(ENDS):
        if commit:
            lines = [value.decode() for value in values(number, 0)]
            write(scene, topic, lines, *_transactional(name))
        else:
            status, said = _Open(scene, topic, name, f"aborted {number}").end(commit=False)
            equal(status, 0, said)
    last = _Open(scene, topic, name, "open")
    committed = [value.decode() for value in expected(0, "read_committed")]
    equal(_words(scene, topic, "read_committed"), committed)
    every = _words(scene, topic, "read_uncommitted")
    aborted = [f"aborted {number}" for number, commit in enumerate(ENDS) if not commit]
    equal([word for word in every if word not in committed], [*aborted, "open"])
    equal(last.end(commit=True)[0], 0)
    _await_words(scene, topic, [*committed, "open"])
    return every


def transactions_fence(scene: Scene) -> object:
    """The second one aborts what the first one wrote, which can't commit any more."""
    topic, name = scene.topic("fence"), scene.name("id")
    zombie = _Open(scene, topic, name, "zombie")
    write(scene, topic, ["second"], *_transactional(name))
    status, said = zombie.end(commit=True)
    true(status != 0 and "fenced" in said.lower(), f"{status}: {said}")
    _await_words(scene, topic, ["second"])
    equal(_words(scene, topic, "read_uncommitted"), ["zombie", "second"])
    return status


def load(scene: Scene) -> object:
    """20,000 records of 100 bytes."""
    topic, count = scene.topic("load"), 20_000
    write(scene, topic, [f"{n:099}" for n in range(count)], "-z", "lz4")
    found = run(scene, "-C", "-q", "-e", "-t", topic).splitlines()
    equal([int(one) for one in found], list(range(count)))
    return len(found)


PLAYED: tuple[Feature, ...] = (
    cluster_describe,
    topics_list,
    topics_describe,
    offsets_list,
    produce_records,
    produce_codecs,
    produce_idempotent,
    produce_acks,
    produce_large,
    produce_refuse,
    produce_auto_create,
    consume_assign,
    consume_seek,
    consume_reset,
    groups_commit,
    groups_rebalance,
    groups_cooperative,
    groups_static,
    transactions_commit,
    transactions_fence,
    load,
)
_ADMIN = (
    *("cluster.versions", "cluster.log_dirs", "cluster.elect"),
    *("topics.create", "topics.refuse", "topics.grow", "topics.delete"),
    *("configs.describe", "configs.alter", "configs.broker", "records.delete"),
    *("groups.list", "groups.describe", "groups.offsets", "groups.delete"),
    "transactions.describe",
)
UNABLE = {
    **dict.fromkeys(_ADMIN, "kcat has no admin client"),
    **dict.fromkeys(("transactions.offsets", "transactions.copy"), "it reads or writes, not both"),
}

if __name__ == "__main__":
    words = subprocess.run([_KCAT, "-V"], capture_output=True, text=True, check=True).stdout
    play(" ".join(re.findall(r"(?:Version|librdkafka) ([\d.]+)", words)), by_name(PLAYED), UNABLE)
