"""A service with probes, which SIGTERM ends cleanly: ``python -m examples.service``.

It plays its own orchestrator: asks the probes, then ends itself. The broker is in this process,
unless ``--bootstrap host:port`` names another one. aiohttp comes with the extra ``examples``.
"""

import argparse
import asyncio
import os
import signal
import uuid

from aiohttp import ClientSession, web

from kclient import Admin, Consumer, ConsumerRecord, NewTopic, Producer
from kclient.testing import Cluster


def probes(consumer: Consumer[bytes | None, bytes | None]) -> web.Application:
    """/healthz: whether restarting would help. /readyz: whether records are being read."""

    async def alive(request: web.Request) -> web.Response:
        client = consumer.health().client
        return web.Response(text=client.state, status=200 if client.failure is None else 500)

    async def ready(request: web.Request) -> web.Response:
        health = consumer.health()
        reported = {"group": health.group and health.group.state, "lag": health.lag}
        return web.json_response(reported, status=200 if health.ok else 503)

    app = web.Application()
    app.add_routes([web.get("/healthz", alive), web.get("/readyz", ready)])
    return app


async def handle(record: ConsumerRecord[bytes | None, bytes | None]) -> None:
    await asyncio.sleep(0.01)  # stands for your work
    print(f"handled offset {record.offset} of {record.topic}", flush=True)


async def serve(bootstrap: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topics([NewTopic(topic, partitions=1)])
        await producer.send_many(topic, [b"order %d" % number for number in range(3)])
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Consumer(bootstrap, topic, group=topic, auto_offset_reset="earliest") as consumer:
        runner = web.AppRunner(probes(consumer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        work = asyncio.create_task(consumer.run(handle))
        work.add_done_callback(lambda _: stopping.set())  # it ends by itself only if it failed
        await play_orchestrator(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await stopping.wait()
        await runner.cleanup()
        await consumer.close(timeout=30.0)  # handlers end, what they did is committed, we leave
    await work
    print("left the group")


async def play_orchestrator(url: str) -> None:
    async with ClientSession(url) as client:
        while (await client.get("/readyz")).status != 200:  # noqa: ASYNC110 - as they do
            await asyncio.sleep(0.1)
        for path in ("/healthz", "/readyz"):
            answer = await client.get(path)
            print(path, answer.status, await answer.text())
    os.kill(os.getpid(), signal.SIGTERM)


async def main(bootstrap: str | None) -> None:
    if bootstrap is not None:
        await serve(bootstrap)
    else:
        async with Cluster(brokers=1) as cluster:
            await serve(cluster.bootstrap)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", help="host:port of a broker; default: one in this process")
    asyncio.run(main(options.parse_args().bootstrap))
