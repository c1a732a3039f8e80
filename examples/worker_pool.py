"""Connectors and their tasks, spread over workers; then one is killed, and its tasks move:
``python -m examples.worker_pool``. The broker is in this process, two of three workers are not.
"""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence

from kclient import GroupMember, JoinedMember
from kclient.testing import Cluster

CONNECTORS = {"s3-sink": 3, "jdbc-source": 2, "search-sink": 4}
TASKS = [f"{name}/{n}" for name, count in CONNECTORS.items() for n in range(count)]


class Pool:
    """All tasks, dealt out round robin by the worker that the group elects."""

    type = "connectors"
    name = "in-turn"

    def metadata(self) -> bytes:
        return b""  # all workers can run everything

    def assign(self, workers: Sequence[JoinedMember]) -> dict[str, bytes]:
        shares = {w.member_id: TASKS[n :: len(workers)] for n, w in enumerate(workers)}
        return {worker: json.dumps(share).encode() for worker, share in shares.items()}


def say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # in one piece: three processes write


async def work(bootstrap: str, name: str, *others: Process) -> None:
    """Runs for ever, unless it is the one that kills another."""
    async with GroupMember(bootstrap, group="pool", protocol=Pool(), session_timeout=6.0) as member:
        async for given in member.assignments():
            tasks = json.loads(given.data)
            say(f"generation {given.generation}: {name} runs {', '.join(tasks)}")
            if others and others[0].returncode is not None:
                return
            if others and len(tasks) == len(TASKS) // 3:
                others[0].kill()
                say("worker-3 was killed")


async def main() -> None:
    async with Cluster(brokers=1) as cluster:
        command = [sys.executable, "-m", "examples.worker_pool", cluster.bootstrap]
        second = await asyncio.create_subprocess_exec(*command, "worker-2")
        third = await asyncio.create_subprocess_exec(*command, "worker-3")
        await work(cluster.bootstrap, "worker-1", third)
        second.kill()
        await second.wait()


if __name__ == "__main__":
    asyncio.run(main() if len(sys.argv) == 1 else work(sys.argv[1], sys.argv[2]))
