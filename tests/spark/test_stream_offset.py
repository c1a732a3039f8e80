"""The offset in checkpoints: a format with a version, and the way over from the connector's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kclient.errors import InvalidArgument
from kclient.spark import StreamOffset, starting_offsets
from kclient.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_the_format_of_version_1_stays_as_it_is() -> None:
    offset = StreamOffset({B0: 7, A1: 2, A0: 1}, {"a": "5f0c"}, {A1: 0})
    assert json.dumps(offset.to_json()) == (
        '{"version": 1, "topics": {"a": {"id": "5f0c", "partitions": {"0": 1, "1": 2}, '
        '"added": {"1": 0}}, "b": {"partitions": {"0": 7}}}}'
    )
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_a_newer_version_and_an_offset_of_the_connector_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="written by a newer kclient"):
        StreamOffset.from_json({"version": 2, "topics": {}})
    with pytest.raises(InvalidArgument, match="starting_offsets"):
        StreamOffset.from_json({"flights": {"0": 5}})


def checkpoint(folder: Path, offsets: dict[int, str], finished: list[int]) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for batch, text in offsets.items():
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{text}')
    for batch in finished:
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    return folder


def test_the_last_finished_batch_is_where_a_query_is_moved_over(tmp_path: Path) -> None:
    old = checkpoint(
        tmp_path, {9: '{"a":{"0":1,"1":2}}', 10: '{"a":{"0":5,"1":6}}', 11: "{}"}, [9, 10]
    )
    assert json.loads(starting_offsets(old)) == {"a": {"0": 5, "1": 6}}


def test_a_checkpoint_of_this_source_is_read_too(tmp_path: Path) -> None:
    ours = json.dumps(StreamOffset({A0: 3, B0: 4}, {"a": "5f"}).to_json())
    old = checkpoint(tmp_path, {0: ours}, [0])
    assert json.loads(starting_offsets(old)) == {"a": {"0": 3}, "b": {"0": 4}}


@pytest.mark.parametrize(
    ("offsets", "finished", "source", "text"),
    [
        ({}, [], 0, "no finished batch"),
        ({}, [0], 0, "can't be read"),
        ({0: '{"logOffset":3}'}, [0], 0, "isn't Kafka"),
        ({0: "5"}, [0], 0, "isn't Kafka"),
        ({0: '{"a":{"0":1}}'}, [0], 1, "has 1 sources"),
    ],
)
def test_what_is_no_checkpoint_of_kafka_is_refused(
    tmp_path: Path, offsets, finished, source, text
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        starting_offsets(checkpoint(tmp_path, offsets, finished), source)
