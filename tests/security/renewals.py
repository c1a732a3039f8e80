"""``python -m tests.security.renewals``: clients go on while their sessions are renewed (KIP-368).

    python -m tests.security.renewals                    5 minutes on three nodes of 4.3.0
    python -m tests.security.renewals --seconds 20

Sessions of the nodes last 10 seconds. A producer, a consumer in a group and an admin client, each
with a mechanism of its own, work all the time. Ends with 0 if no request, send or connection
failed, each record was read once, and sessions were renewed as often as they had to be.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter

import kclient
from kclient import NewTopic, Secret, Security, events
from kclient.types import Event
from tests.security.conftest import set_scram_passwords
from tests.support.broker_settings import USERS
from tests.support.nodes import Nodes, three_nodes

LIFETIME = 10.0
"""Seconds of a session, which is renewed after 85 to 95% of them."""
PARTITIONS = 6
TOPIC = "renewed"
_PAUSE = 0.02
_BATCH = 20


class Watch:
    """What happened to the clients: logins, connections and failures. An observer."""

    def __init__(self) -> None:
        self.logins = 0
        self.opened = 0
        self.requests = 0
        self.failures: Counter[str] = Counter()

    def observe(self, event: Event) -> None:
        """Count it."""
        match event:
            case events.ConnectionOpened():
                self.opened += 1
            case events.ConnectionClosed(reason=reason) if "unused for" not in reason:
                self.failures[f"closed: {reason}"] += 1
            case events.RequestCompleted(error=None):
                self.requests += 1
            case events.RequestCompleted(api=api, error=error):
                self.failures[f"{api}: {error}"] += 1
            case events.BatchRetried() | events.BatchFailed():
                self.failures[type(event).__name__] += 1

    def security(self, username: str, mechanism: str) -> Security:
        """That of a client whose logins are counted."""

        def credentials() -> tuple[str, Secret]:
            self.logins += 1
            return username, Secret(USERS[username])

        if mechanism == "PLAIN":
            return Security.sasl_plain(credentials=credentials, unencrypted=True)
        return Security.sasl_scram(
            mechanism=mechanism,  # type: ignore[arg-type]
            credentials=credentials,
            unencrypted=True,
        )


async def send(producer: kclient.Producer[bytes, bytes], until: float) -> int:
    """Send numbered records; returns how many."""
    sent = 0
    deliveries: list[kclient.Delivery] = []
    while time.monotonic() < until:
        for _ in range(_BATCH):
            deliveries.append(producer.send(TOPIC, b"%d" % sent, partition=sent % PARTITIONS))
            sent += 1
        if len(deliveries) >= 50 * _BATCH:
            await asyncio.gather(*deliveries)
            deliveries.clear()
        await asyncio.sleep(_PAUSE)
    await asyncio.gather(*deliveries)
    return sent


async def read(consumer: kclient.Consumer[bytes, bytes], seen: Counter[int]) -> None:
    """Read until cancelled."""
    while True:
        for record in await consumer.poll():
            seen[int(record.value or b"-1")] += 1
        await consumer.commit()


async def ask(admin: kclient.Admin) -> None:
    """Ask all nodes, until cancelled."""
    while True:
        await admin.list_topics()
        await admin.describe_cluster()
        await asyncio.sleep(0.05)


async def run(nodes: Nodes, seconds: float) -> list[str]:
    """Run all clients; returns what is wrong."""
    watch, seen, sent = Watch(), Counter[int](), 0
    bootstrap = nodes.sasl_bootstrap
    await set_scram_passwords(nodes.bootstrap, USERS)
    async with kclient.Admin(nodes.bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS)])
    async with (
        kclient.Admin(
            bootstrap, security=watch.security("carol", "SCRAM-SHA-256"), observers=[watch]
        ) as admin,
        kclient.Producer(
            bootstrap, security=watch.security("alice", "SCRAM-SHA-512"), observers=[watch]
        ) as producer,
        kclient.Consumer(
            bootstrap,
            TOPIC,
            group="readers",
            auto_offset_reset="earliest",
            security=watch.security("zoe", "PLAIN"),
            observers=[watch],
        ) as consumer,
    ):
        others = [asyncio.create_task(read(consumer, seen)), asyncio.create_task(ask(admin))]
        began = time.monotonic()
        sent = await send(producer, began + seconds)
        for _ in range(600):
            if len(seen) >= sent:
                break
            await asyncio.sleep(0.05)
        failures = watch.failures.copy()
        renewals, opened, requests = watch.logins - watch.opened, watch.opened, watch.requests
        for task in others:
            task.cancel()
        ended = await asyncio.gather(*others, return_exceptions=True)
    doubled = sum(count - 1 for count in seen.values())
    sys.stdout.write(
        f"{seconds:g} s, {opened} connections, {renewals} renewals, {requests:,} requests, "
        f"{sent:,} records sent, {len(seen):,} read, {doubled} doubled\n"
    )
    wrong = [f"{what}: {count}" for what, count in failures.items()]
    wrong += [repr(one) for one in ended if not isinstance(one, asyncio.CancelledError)]
    if len(seen) != sent or doubled:
        wrong.append("records were lost or doubled")
    # Each of the nodes has a connection of each client at least.
    if renewals < 3 * len(nodes.ids) * (seconds // LIFETIME):
        wrong.append("sessions were renewed too seldom")
    return wrong


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", default="4.3.0", help="of Apache Kafka")
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    with three_nodes(options.version, purpose="renewals", session_lifetime=LIFETIME) as nodes:
        wrong = asyncio.run(run(nodes, options.seconds))
    for what in wrong:
        sys.stdout.write(f"wrong: {what}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
