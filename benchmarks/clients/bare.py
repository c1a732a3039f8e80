"""What no client can beat: one ready-made request after the other, and nothing else.

The same Produce request of one record is sent to the broker repeatedly, on a blocking socket, on
asyncio and on uvloop, with the least code that they allow: no batch is built, nothing is
serialized, and responses are only received. It is shown beside the latencies of the clients, which
do all that.
Loaded in workers only.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

from benchmarks.clients.latency import PATIENCE, timed, timed_without_loop
from benchmarks.clients.loops import run_on_loop
from benchmarks.job import Job, Outcome
from benchmarks.values import values
from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kclient.record import BatchBuilder

VERSION = 12
"""The last one that names topics by name."""
_SIZE_BYTES = 4


def _request(job: Job) -> bytes:
    batch = BatchBuilder()
    batch.append(-1, None, next(values(job.size, 1)), None)
    part = PartitionProduceData(index=0, records=batch.encode())
    topic = TopicProduceData(name=job.topic, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    return encode_request(request, VERSION, 1, "bare")


def _check(frame: bytes) -> None:
    """Raise ValueError unless this response reports that the record was written."""
    _, start = decode_response_header(frame, ProduceRequest.API_KEY, VERSION)
    (topic,) = ProduceResponse.decode(frame, VERSION, start).responses
    (part,) = topic.partition_responses
    if part.error_code or part.base_offset < 0:
        raise ValueError(f"not written: error {part.error_code}")


def _address(job: Job) -> tuple[str, int]:
    host, _, port = job.bootstrap.split(",")[0].rpartition(":")
    return host, int(port)


def blocking(job: Job) -> Outcome:
    """``sendall``, then ``recv`` until the response is complete."""
    request, frame = _request(job), b""

    with socket.create_connection(_address(job), PATIENCE) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def one(value: bytes) -> None:
            nonlocal frame
            sock.sendall(request)
            frame = b""
            while not _is_whole(frame):
                piece = sock.recv(65536)
                if not piece:
                    raise ConnectionError("the broker closed")
                frame += piece

        outcome = timed_without_loop(job, one)
        _check(frame[_SIZE_BYTES:])
        return outcome


def _is_whole(frame: bytes) -> bool:
    size = int.from_bytes(frame[:_SIZE_BYTES], "big")
    return len(frame) >= _SIZE_BYTES and len(frame) >= _SIZE_BYTES + size


class _Bare(asyncio.Protocol):
    """Has one request in flight, and waits for its response."""

    def __init__(self) -> None:
        self.frame = b""
        self.answer: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        frame = self.frame = self.frame + data
        if self.answer is not None and _is_whole(frame):
            self.answer.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error or ConnectionError("the broker closed"))


def on_asyncio(job: Job) -> Outcome:
    """``transport.write``, then a future until the response is complete."""
    request = _request(job)

    async def main() -> Outcome:
        loop = asyncio.get_running_loop()
        transport, bare = await loop.create_connection(_Bare, *_address(job))

        def one(value: bytes) -> asyncio.Future[None]:
            response = bare.answer = loop.create_future()
            bare.frame = b""
            bare.write(request)
            return response

        outcome = await timed(job, one)
        _check(bare.frame[_SIZE_BYTES:])
        bare.answer = None
        transport.close()
        return outcome

    return run_on_loop(job, main)


def on_uvloop(job: Job) -> Outcome:
    """The same on uvloop."""
    return on_asyncio(replace(job, loop="uvloop"))
