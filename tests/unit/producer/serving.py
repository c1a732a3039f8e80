"""Helpers for tests of sending: queues, requests, and a broker's responses to them."""

from __future__ import annotations

from typing import Any

from kclient.producer._compiled import PartitionQueue
from kclient.protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
)
from kclient.record import read_batches

from .model_broker import ModelBroker
from .rig import Rig


def queue_of(rig: Rig, partition: int = 0, topic: str = "t") -> PartitionQueue:
    queue = rig.accumulator.topics[topic].queues[partition]
    assert queue is not None
    return queue


def values(message: ProduceRequest) -> dict[tuple[str, int], list[bytes]]:
    return {
        (topic.name, part.index): [
            bytes(record.value)
            for batch in read_batches(part.records)
            for record in batch.records("t", 0)
        ]
        for topic in message.topic_data
        for part in topic.partition_data
    }


def serve(rig: Rig, broker: ModelBroker, code: int = 0) -> ProduceRequest:
    sent = rig.take_request()
    message = sent.message()
    rig.answer(sent, broker.produce(message, refuse=code))
    return message


def part_of(response: ProduceResponse) -> Any:
    return response.responses[0].partition_responses[0]
