"""Typical first-day mistakes: refused early, with a text that states the remedy."""

from __future__ import annotations

import builtins
import dataclasses
import datetime
import functools
import inspect
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kclient
import kclient.testing
from kclient import Admin, Consumer, GroupMember, Producer, broker_errors, errors
from kclient.config import AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig
from kclient.consumer.arguments import (
    checked_partitions,
    checked_target,
    checked_times,
)
from kclient.errors import InvalidArgument, InvalidConfig, KafkaError, a_or_an
from kclient.producer.outgoing import checked_timestamp, plain_bytes
from kclient.serializers import IntegerSerializer, JsonDeserializer, JsonSerializer
from kclient.types import TopicPartition, checked_commit, checked_partition

PLACES = [
    (Producer, "key_serializer"),
    (Producer, "value_serializer"),
    (Consumer, "key_deserializer"),
    (Consumer, "value_deserializer"),
]


class OfOne:
    """Its instances take one argument."""

    def __call__(self, value: object) -> bytes:
        return b""


@pytest.mark.parametrize(("client", "field"), PLACES)
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (lambda value: b"", "<lambda>(value)"),
        (json.dumps, "dumps(obj, "),
        (lambda topic, data, *, schema: b"", "<lambda>(topic, data, schema)"),
        (lambda: b"", "<lambda>()"),
        (OfOne(), "OfOne(value)"),
    ],
)
def test_a_serializer_that_takes_no_topic_is_refused_when_the_client_is_made(
    client: Any, field: str, given: object, shown: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client("localhost:9092", **{field: given})
    assert f"{field}={shown}" in str(caught.value)
    assert "lambda topic, data: ..." in str(caught.value)
    assert "callable(topic, data)" in str(caught.value)


def test_what_a_serializer_was_bound_to_is_not_shown() -> None:
    def encrypt(secret: str) -> bytes:
        return secret.encode()

    with pytest.raises(InvalidArgument) as caught:
        Producer("localhost:9092", value_serializer=functools.partial(encrypt, "pass-word"))
    assert "pass-word" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        lambda topic, data: b"",
        lambda topic, data, schema=None: b"",
        lambda *whatever: b"",
        functools.partial(lambda schema, topic, data: b"", "schema"),
        max,  # a builtin without a signature
        None,
    ],
)
@pytest.mark.parametrize(("client", "field"), PLACES)
def test_a_callable_that_takes_topic_and_data_will_do(
    client: Any, field: str, given: object
) -> None:
    client("localhost:9092", **{field: given})


def test_ready_made_ones_will_do() -> None:
    Producer("localhost:9092", key_serializer=JsonSerializer(), value_serializer=JsonSerializer())
    Consumer("localhost:9092", value_deserializer=JsonDeserializer())


@pytest.mark.parametrize("given", ["json", JsonDeserializer])
def test_a_deserializer_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(InvalidConfig, match="value_deserializer"):
        Consumer("localhost:9092", value_deserializer=given)


# Errors by name.

ROOT = Path(kclient.__file__).parent
PACKAGES = ("admin", "cluster", "consumer", "producer")
"""Packages whose docstrings name errors that users may catch."""


def test_every_error_that_docstrings_name_can_be_imported_from_errors() -> None:
    named = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).glob("*.py")):
        for raises in re.findall(r"Raises:\n(.*?)(?:\n\n|\"\"\")", path.read_text(), re.DOTALL):
            for names in re.findall(r"^ +([A-Z]\w+(?:, [A-Z]\w+)*): ", raises, re.MULTILINE):
                named.update(names.split(", "))
    assert {"UnknownTopicOrPartition", "LeaderNotAvailable", "InvalidArgument"} <= named
    missing = {name for name in named - set(dir(builtins)) if not hasattr(errors, name)}
    assert not missing


def public_docstrings() -> Iterator[str]:
    """Yield the docstrings of the public classes and functions, and of their public methods."""
    for module in (kclient, kclient.testing):
        for public in (getattr(module, name) for name in module.__all__):
            yield inspect.getdoc(public) or ""
            for name, member in inspect.getmembers(public) if isinstance(public, type) else ():
                if not name.startswith("_") or name in ("__aenter__", "__aexit__", "__aiter__"):
                    yield inspect.getdoc(member) or ""


def test_every_error_that_public_docstrings_name_is_at_the_top() -> None:
    named = set()
    for text in public_docstrings():
        for raises in re.findall(r"Raises:\n(.*?)(?:\n\n|\Z)", text, re.DOTALL):
            named.update(re.findall(r"\b[A-Z]\w+", raises))
    classes = {name: getattr(errors, name, None) for name in named}
    found = {name: kind for name, kind in classes.items() if isinstance(kind, type)}
    assert {"BufferFull", "FlushFailed", "TopicAlreadyExists", "ConsumerStalled"} <= set(found)
    missing = {name for name, kind in found.items() if getattr(kclient, name, None) is not kind}
    assert not missing


def test_every_client_error_is_at_the_top() -> None:
    waiting, missing = [KafkaError], set()
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if kind.__module__ == errors.__name__ and getattr(kclient, kind.__name__, None) is not kind:
            missing.add(kind.__name__)
    assert not missing


def test_errors_from_the_top_are_pickled_by_their_own_module() -> None:
    data = pickle.dumps(kclient.FlushFailed("2 records", count=2, errors=()))
    assert b"kclient.errors" in data
    again = pickle.loads(data)
    assert type(again) is errors.FlushFailed
    assert (again.count, str(again)) == (2, "2 records")


def test_a_client_error_from_the_top_loads_no_broker_errors() -> None:
    code = "import sys, kclient; kclient.BufferFull; print('kclient.broker_errors' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_broker_errors_are_the_same_classes_by_either_way() -> None:
    from kclient.errors import LeaderNotAvailable, TopicAuthorizationFailed

    assert LeaderNotAvailable is broker_errors.LeaderNotAvailable
    assert TopicAuthorizationFailed is broker_errors.TopicAuthorizationFailed


@pytest.mark.parametrize("name", ["NoSuchError", "annotations_", "__wrapped__"])
def test_other_names_are_not_in_errors(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'kclient.errors' has no attribute '{name}'"):
        getattr(errors, name)


def test_errors_alone_load_no_broker_errors() -> None:
    code = "import sys, kclient.errors; print('kclient.broker_errors' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Arguments and settings.


@pytest.mark.parametrize("topics", [["t"], ("a", "b"), {"t"}, iter("t")])
def test_topics_given_as_one_collection_are_refused_with_a_way_out(topics: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"Consumer\(bootstrap, \*topics\)"):
        Consumer("localhost:9092", topics)


def test_other_things_than_topics_have_no_such_hint() -> None:
    wrong: Any = 5
    with pytest.raises(InvalidArgument, match=r"topic must be a str, not int$"):
        Consumer("localhost:9092", wrong)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (ProducerConfig, {"linger": 500}),
        (ProducerConfig, {"linger": 10_000_000}),
        (ProducerConfig, {"delivery_timeout": 1e9}),
        (ProducerConfig, {"retry_backoff": 100}),
        (ProducerConfig, {"reconnect_backoff": 50}),
        (ProducerConfig, {"connection_setup_timeout": 10_000}),
        (ConsumerConfig, {"fetch_max_wait": 500}),
    ],
)
def test_milliseconds_are_refused_as_durations_are_seconds(
    config: Any, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidConfig, match="durations are in seconds"):
        config(**settings)


@pytest.mark.parametrize(
    ("config", "settings", "meant"),
    [
        (ProducerConfig, {"compression": "ZSTD"}, "'zstd'"),
        (ProducerConfig, {"compression": "zsdt"}, "'zstd'"),
        (ProducerConfig, {"acks": "ALL"}, "'all'"),
        (ProducerConfig, {"acks": "1"}, "1"),
        (ConsumerConfig, {"isolation_level": "read-committed"}, "'read_committed'"),
        (ConsumerConfig, {"auto_offset_reset": "erliest"}, "'earliest'"),
    ],
)
def test_a_slip_in_a_choice_gets_what_was_meant_as_advice(
    config: Any, settings: dict[str, Any], meant: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"did you mean {meant}\\?"):
        config(**settings)


def test_a_choice_that_resembles_none_gets_all_choices_as_advice() -> None:
    with pytest.raises(InvalidConfig) as caught:
        ProducerConfig(compression="brotli")
    assert "did you mean" not in str(caught.value)
    assert "'zstd'" in str(caught.value)


@pytest.mark.parametrize(
    ("word", "shown"), [("int", "an int"), ("str", "a str"), ("UUID", "a UUID"), ("Any", "an Any")]
)
def test_types_have_their_article(word: str, shown: str) -> None:
    assert a_or_an(word) == shown


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_with_without_async_names_the_remedy(client: Any) -> None:
    with pytest.raises(TypeError, match=f"`async with` is needed for {a_or_an(client.__name__)}"):
        with client("localhost:9092"):
            pass  # pragma: no cover


def test_for_without_async_names_the_remedy() -> None:
    with pytest.raises(TypeError, match="`async for` is needed for a Consumer"):
        for _ in Consumer("localhost:9092"):  # type: ignore[attr-defined]
            pass  # pragma: no cover


# Errors found in a trial of a new user's mistakes: texts that misled, or did not help.


def test_a_topic_and_a_value_in_the_wrong_order_are_detected_by_the_topic() -> None:
    with pytest.raises(InvalidArgument, match="topic must be a str, not bytes"):
        plain_bytes(b"v", "value", "t")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [1_714_564_800.5, datetime.datetime(2024, 5, 1)])
def test_a_timestamp_that_is_no_int_is_refused_with_how_to_make_one(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"int\(.*1000\)"):
        checked_timestamp(given)


def test_names_of_topics_in_place_of_partitions_are_refused_with_an_example() -> None:
    with pytest.raises(InvalidArgument, match=r"TopicPartition\('orders', 0\)"):
        checked_partitions(["orders"])  # type: ignore[list-item]


@pytest.mark.parametrize("given", [[TopicPartition("t", 0)], {TopicPartition("t", 0)}])
def test_a_collection_in_place_of_a_partition_is_refused_with_the_way_to_unpack(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"as an argument of its own: \*partitions"):
        checked_partition(given)


def test_an_offset_to_commit_has_no_hint_that_is_meant_for_seek() -> None:
    with pytest.raises(InvalidArgument, match="offset -1") as caught:
        checked_commit(-1)
    assert "seek" not in str(caught.value)
    with pytest.raises(InvalidArgument, match="seek_to_beginning"):
        checked_target(-1)


@pytest.mark.parametrize("given", [[TopicPartition("t", 0)], TopicPartition("t", 0), 5, None])
def test_times_that_are_no_mapping_are_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="a mapping of TopicPartition to a time"):
        checked_times(given)


def test_numbers_above_what_the_protocol_has_name_the_bound() -> None:
    with pytest.raises(InvalidArgument, match=r"allowed is 0 to 2\*\*63-1$"):
        checked_target(2**63)
    with pytest.raises(InvalidArgument, match="allowed is 0 to 2,147,483,647"):
        checked_partition(TopicPartition("t", 2**31))


def test_times_by_partition_will_do() -> None:
    noon = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    partition = TopicPartition("t", 0)
    assert checked_times({partition: noon}) == {partition: 1_714_564_800_000}


@pytest.mark.parametrize("method", [Producer.send, Producer.enqueue_nowait])
def test_help_shows_the_types_of_arguments_in_both_builds(method: Any) -> None:
    shown = inspect.signature(method)
    types = {name: one.annotation for name, one in shown.parameters.items() if name != "self"}
    assert types == {
        "topic": "str",
        "value": "V | None",
        "key": "K | None",
        "headers": "HeadersArgument",
        "partition": "int | None",
        "timestamp": "int | None",
    }
    assert shown.return_annotation == "Delivery"
    enqueue = inspect.signature(Producer.enqueue)
    assert {name: enqueue.parameters[name].annotation for name in types} == types
    first = (method.__doc__ or "").splitlines()[0]
    assert "(self" not in first  # what the method does, not its signature


def test_the_name_of_a_security_protocol_gets_the_factory_as_advice() -> None:
    with pytest.raises(InvalidConfig, match=r"security='SSL' .* as Security\.tls\(\)"):
        Producer("localhost:9092", security="SSL")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["a:9092;b:9093", "a:9092; b", "a:9092 b:9093", "a b"])
def test_addresses_that_are_not_separated_by_commas_are_refused(given: str) -> None:
    with pytest.raises(InvalidConfig, match="addresses are separated by commas") as caught:
        Producer(given)
    assert "IPv6" not in str(caught.value)


def test_an_ipv6_address_without_brackets_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidConfig, match=r"in brackets, '\[::1\]:9092'"):
        Producer("::1:9092")


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("127.0.0.1:9092", r"the address comes first: `Consumer\(bootstrap, \*topics\)`"),
        ("orders,copies", "give each topic as an argument of its own"),
        ("^orders-2024", "a regular expression is given as `pattern='"),
        ("orders.*", "a regular expression is given as `pattern='"),
        ("orders|copies", "a regular expression is given as `pattern='"),
    ],
)
def test_what_is_no_topic_name_is_refused_with_where_it_belongs(given: str, advice: str) -> None:
    with pytest.raises(InvalidArgument, match=f"is not a topic name: .*{advice}"):
        Consumer("orders", given)


def test_another_bad_topic_name_has_no_such_hint() -> None:
    with pytest.raises(InvalidArgument, match=r"neither '\.' nor '\.\.'$"):
        Consumer("localhost:9092", "my orders")


def test_no_compression_is_spelt_out() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'none'"):
        Producer("localhost:9092", compression=None)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("codec", "level", "allowed"),
    [
        ("gzip", 99, "0 to 9"),
        ("lz4", -1, "0 to 16"),
        ("zstd", 23, "-131,072 to 22"),
        ("gzip", "9", "an int"),
        ("gzip", True, "an int"),
    ],
)
def test_a_bad_level_is_refused_with_the_range_of_its_codec(
    codec: Any, level: Any, allowed: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"compression_level=.*allowed is {allowed}"):
        Producer("localhost:9092", compression=codec, compression_level=level)


@pytest.mark.parametrize("client", [Admin, Consumer, GroupMember, Producer])
def test_start_documents_how_to_try_again(client: Any) -> None:
    words = " ".join((inspect.getdoc(client.start) or "").split())
    assert re.search(r"BootstrapFailed: .*[Mm]ake a new client to try again\..*ClientClosed", words)


@pytest.mark.parametrize(
    ("client", "field", "given", "meant"),
    [
        (Consumer, "value_deserializer", JsonSerializer(), "JsonDeserializer"),
        (Consumer, "key_deserializer", IntegerSerializer(4), "IntegerDeserializer"),
        (Producer, "value_serializer", JsonDeserializer(), "JsonSerializer"),
    ],
)
def test_a_serializer_in_place_of_a_deserializer_is_refused(
    client: Any, field: str, given: object, meant: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"{field} is {a_or_an(type(given).__name__)}.*{meant}"):
        client("localhost:9092", **{field: given})


@pytest.mark.parametrize(
    ("client", "name", "meant"),
    [
        (Consumer, "on_assign", "on_assigned"),
        (Consumer, "on_revoke", "on_revoked"),
        (Consumer, "patern", "pattern"),
        (Consumer, "bad_record", "bad_records"),
        (Producer, "observer", "observers"),
        (Admin, "dialler", "dialer"),
    ],
)
def test_an_argument_of_the_client_is_suggested_like_a_setting(
    client: Any, name: str, meant: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"did you mean '{meant}'\\?"):
        client("localhost:9092", **{name: print})


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig])
def test_an_argument_of_the_client_is_no_setting(config: Any) -> None:
    with pytest.raises(InvalidConfig, match="'observers': it is an argument of the client"):
        config(observers=[])


@pytest.mark.parametrize(
    ("client", "config"),
    [
        (Admin, AdminConfig),
        (Consumer, ConsumerConfig),
        (GroupMember, GroupMemberConfig),
        (Producer, ProducerConfig),
    ],
)
def test_the_arguments_that_are_suggested_are_those_of_the_client(client: Any, config: Any) -> None:
    settings = {field.name for field in dataclasses.fields(config)}
    named = {
        parameter.name
        for parameter in inspect.signature(client).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert set(config.ARGUMENTS) == named - settings
