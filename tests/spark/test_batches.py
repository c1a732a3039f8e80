"""Topics as tables."""

from __future__ import annotations

from typing import Any

import pyspark.sql.datasource
import pytest

from kclient.spark import KafkaDataSource


def rows(frame: Any) -> list[tuple[int, int, bytes | None]]:
    found = frame.select("partition", "offset", "value").collect()
    return sorted(
        (r.partition, r.offset, None if r.value is None else bytes(r.value)) for r in found
    )


def test_a_topic_is_a_table_with_the_schema_of_the_connector(topics: Any, read: Any) -> None:
    name = topics.create(partitions=2)
    topics.write(name, [(n % 2, b"%d" % n) for n in range(10)], compression="zstd")
    frame = read(subscribe=name)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert rows(frame) == sorted((n % 2, n // 2, b"%d" % n) for n in range(10))


def test_only_the_columns_of_a_schema_are_read(topics: Any, read: Any) -> None:
    name = topics.create()
    topics.write(name, [(0, b"v")] * 5)
    assert read(schema="offset bigint", subscribe=name).columns == ["offset"]
    assert read(schema="offset bigint", subscribe=name).count() == 5
    for schema in ("offset int", "nothing string"):
        with pytest.raises(Exception, match="the schema has"):
            read(schema=schema, subscribe=name).count()


def test_filters_on_partition_offset_and_time_make_ranges_smaller(
    spark: Any, topics: Any, read: Any
) -> None:
    name = topics.create(partitions=3)
    topics.write(name, [(n % 3, b"%d" % n) for n in range(300)])
    pushes = hasattr(pyspark.sql.datasource, "Filter")  # from 4.1 on
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(subscribe=name).where("partition = 1 and offset >= 20 and offset < 30")
        assert rows(frame) == [(1, n, b"%d" % (3 * n + 1)) for n in range(20, 30)]
        assert frame.rdd.getNumPartitions() == (1 if pushes else 3)
        assert read(subscribe=name).where("partition in (0, 2)").count() == 200
        assert read(subscribe=name).where("timestamp > '2099-01-01'").count() == 0
        assert read(subscribe=name).where("timestamp > '2020-01-01'").count() == 300
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_values_of_json_become_columns_and_bad_ones_an_error(topics: Any, read: Any) -> None:
    name = topics.create()
    values = [b'{"carrier": "UA", "delay": 5}', b"nonsense", b'{"delay": "late"}', b"[1]", None]
    values.append(b'{"delay": 1.5}')
    topics.write(name, [(0, value) for value in values])
    frame = read(subscribe=name, valueSchema="carrier string, delay int")
    found = frame.select("offset", "data.*", "error").orderBy("offset").collect()
    assert [(r.carrier, r.delay) for r in found] == [("UA", 5), *[(None, None)] * 5]
    assert found[0].error is None
    assert "JSONDecodeError" in found[1].error
    assert "delay" in found[2].error or "int" in found[2].error
    assert "no object" in found[3].error
    assert found[4].error is None
    assert "delay is an integer, not 1.5" in found[5].error


class Halves(KafkaDataSource):
    """Decodes values in Python."""

    value_schema = "left string, right string"

    @classmethod
    def name(cls) -> str:
        return "halves"

    def decode_value(self, topic: str, value: bytes) -> dict[str, str]:
        text = value.decode(errors="surrogateescape")
        if "|" not in text:
            raise ValueError(text)
        left, right = text.split("|")
        return {"left": left, "right": right}


def test_a_class_of_ones_own_decodes_values(spark: Any, topics: Any) -> None:
    name = topics.create()
    topics.write(name, [(0, b"a|b"), (0, b"c"), (0, b"\xff")])
    spark.dataSource.register(Halves)
    reader = spark.read.format("halves").option("kafka.bootstrap.servers", topics.bootstrap)
    found = reader.option("subscribe", name).load().orderBy("offset").select("data.*", "error")
    first, second, third = found.collect()
    assert (first.left, first.right, first.error) == ("a", "b", None)
    assert second.left is None
    assert "ValueError" in second.error
    assert third.error == r"ValueError: \udcff"  # no text that could be written as UTF-8


def test_values_are_decoded_where_short_partitions_share_a_task(topics: Any, read: Any) -> None:
    name = topics.create(partitions=20)
    topics.write(name, [(n, b'{"n": %d}' % n) for n in range(20)])
    found = read(subscribe=name, valueSchema="n int", schema="data struct<n: int>").collect()
    assert sorted(row.data.n for row in found) == list(range(20))


def test_records_that_are_gone_are_an_error_unless_it_is_said_to_go_on(
    topics: Any, read: Any
) -> None:
    name = topics.create()
    topics.write(name, [(0, b"%d" % n) for n in range(50)])
    topics.delete_records(name, 20)
    begin = f'{{"{name}": {{"0": 5}}}}'
    with pytest.raises(Exception, match=r"has 5 for .*whose log has 20 to 50"):
        read(subscribe=name, startingOffsets=begin).count()
    frame = read(subscribe=name, startingOffsets=begin, failOnDataLoss="false")
    assert rows(frame) == [(0, n, b"%d" % n) for n in range(20, 50)]


def test_records_that_vanish_between_plan_and_read_are_an_error(topics: Any, read: Any) -> None:
    name = topics.create()
    topics.write(name, [(0, b"%d" % n) for n in range(50)])
    planned = {flag: read(subscribe=name, failOnDataLoss=flag) for flag in ("true", "false")}
    for frame in planned.values():
        frame.rdd.getNumPartitions()  # plans it
    topics.delete_records(name, 20)
    with pytest.raises(Exception, match=r"20 offsets of .* from 0 on are gone"):
        planned["true"].collect()
    assert len(planned["false"].collect()) == 30


def test_settings_come_from_a_file_that_each_node_reads(
    spark: Any, topics: Any, tmp_path: Any
) -> None:
    name = topics.create()
    topics.write(name, [(0, b"v")])
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={topics.bootstrap}\nclient.id=from-a-file\n")
    reader = spark.read.format("kclient").option("subscribe", name)
    assert reader.option("kclient.properties.file", str(file)).load().count() == 1
    with pytest.raises(Exception, match="can't be read on this node"):
        reader.option("kclient.properties.file", str(tmp_path / "none")).load().count()


def test_wrong_options_are_reported_when_the_frame_is_made(spark: Any, read: Any) -> None:
    with pytest.raises(Exception, match="did you mean subscribe"):
        read(subscrbe="x")
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PARTITION"):
        read(subscribe="no-such-topic").count()
