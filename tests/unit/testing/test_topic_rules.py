"""Names of topics that the controller takes; all else is in `tests/conformance`."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.refused import Refused
from kclient.testing.topic_rules import check_name


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "..."])
def test_names_that_kafka_allows(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a\n"])
def test_names_that_kafka_refuses(name: str) -> None:
    with pytest.raises(Refused) as caught:
        check_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
