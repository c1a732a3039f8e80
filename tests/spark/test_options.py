"""Options: what is taken, and that each wrong one is named with what is allowed."""

from __future__ import annotations

import pytest

from kclient.errors import InvalidArgument, InvalidConfig
from kclient.spark.options import Bound, parse_options
from kclient.types import OffsetSpec, TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
FLIGHTS = {**SERVERS, "subscribe": "flights"}


def test_all_options_of_the_connector_are_taken_in_any_case_of_letters() -> None:
    found = parse_options(
        {
            "KAFKA.bootstrap.servers": "localhost:9092",
            "subscribe": "flights, orders",
            "startingoffsets": '{"flights": {"0": 5, "1": -2}}',
            "endingOffsets": "latest",
            "failOnDataLoss": "FALSE",
            "minPartitions": "10",
            "maxRecordsPerPartition": "1000",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": "500",
            "minOffsetsPerTrigger": "100",
            "maxTriggerDelay": "2m",
            "groupIdPrefix": "spark",
            "kafka.group.id": "g",
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "3",
            "fetchOffset.retryIntervalMs": "10",
            "kafka.isolation.level": "read_committed",
        }
    )
    assert found.topics == ("flights", "orders")
    assert found.starting == Bound(
        offsets={TopicPartition("flights", 0): 5, TopicPartition("flights", 1): -2}
    )
    assert found.ending.spec is OffsetSpec.LATEST
    assert not found.fail_on_data_loss
    assert (found.min_partitions, found.max_records_per_partition) == (10, 1000)
    assert (found.max_offsets_per_trigger, found.min_offsets_per_trigger) == (500, 100)
    assert (found.max_trigger_delay, found.poll_timeout) == (120.0, 5.0)
    assert found.properties["isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "one of the options subscribe, subscribePattern and assign is missing"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign were given"),
        ({"subscribe": " , "}, "names of topics"),
        ({"subscribe": "a b"}, "a b"),
        ({"subscribePattern": "("}, "a regular expression"),
        ({"assign": '{"a": ["0"]}'}, "JSON such as"),
        ({"assign": "[]"}, "JSON such as"),
        ({"assign": "{}"}, "JSON such as"),
        ({"subscrbe": "a"}, "did you mean subscribe?"),
        ({"topic": "a"}, "did you mean subscribe?"),
        ({"subscribe": "a", "client.id": "x"}, "begin with kafka."),
        ({"subscribe": "a", "startingOffsets": "first"}, '"earliest", "latest" or JSON'),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "JSON of offsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": 3}}'}, "JSON of offsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": 3}'}, "JSON of offsets"),
        ({"subscribe": "a", "startingOffsets": "{}"}, "JSON of offsets"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, '"latest" or JSON'),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "-1 \\(latest\\) or an offset"),
        ({"subscribe": "a", "startingTimestamp": "-5"}, "milliseconds"),
        ({"subscribe": "a", "startingTimestamp": "now"}, "milliseconds"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "milliseconds"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "an integer from 1"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "1.5"}, "an integer from 1"),
        (
            {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "at most maxOffsetsPerTrigger",
        ),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "such as 15m"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "startingOffsets says"),
        ({"subscribe": "a", "kafka.enable.auto.commit": "true"}, "OffsetListener"),
        ({"subscribe": "a", "kafka.value.deserializer": "x"}, "binary columns"),
        ({"subscribe": "a", "kafka.interceptor.classes": "x"}, "no interceptors"),
        ({"subscribe": "a", "kafka.sasl.jaas.config": "x"}, "kclient.properties.file"),
        ({"subscribe": "a", "kafka.ssl.key.password": "x"}, "kclient.properties.file"),
        ({"subscribe": "a", "valueFormat": "avro"}, "json"),
        ({"subscribe": "a", "valueFormat": "json"}, "valueSchema is missing"),
        ({"subscribe": "a", "valueSchema": " "}, "names and types"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict[str, str], text: str) -> None:
    with pytest.raises((InvalidConfig, InvalidArgument), match=text):
        parse_options({**SERVERS, **options})


def test_no_secret_is_repeated_by_the_error_about_it() -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_options({**FLIGHTS, "kafka.sasl.jaas.config": "password=hunter2"})
    assert "hunter2" not in str(refused.value)


def test_brokers_are_needed_or_a_file_that_has_them() -> None:
    with pytest.raises(InvalidConfig, match=r"kafka\.bootstrap\.servers is missing"):
        parse_options({"subscribe": "a"})
    found = parse_options({"subscribe": "a", "kclient.properties.file": "/etc/kafka.properties"})
    assert found.properties_file == "/etc/kafka.properties"


def test_batches_and_streams_have_options_of_their_own() -> None:
    for name, value in (("endingOffsets", "latest"), ("endingTimestamp", "5")):
        with pytest.raises(InvalidConfig, match=f"{name} can't be used in a stream"):
            parse_options({**FLIGHTS, name: value}).check_stream()
    with pytest.raises(InvalidConfig, match="maxOffsetsPerTrigger can't be used in a batch"):
        parse_options({**FLIGHTS, "maxOffsetsPerTrigger": "5"}).check_batch()
    for start in ("latest", '{"flights": {"0": -1}}'):
        with pytest.raises(InvalidConfig, match="in a batch"):
            parse_options({**FLIGHTS, "startingOffsets": start}).check_batch()
        parse_options({**FLIGHTS, "startingOffsets": start}).check_stream()
