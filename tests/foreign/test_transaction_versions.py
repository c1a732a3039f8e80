"""Which version of the transaction protocol a foreign client speaks, and that both work.

On a cluster with version 1 all of them speak that. Of the clients here only Java's speaks version
2, by EndTxn 5; for others `python -m tests.foreign --broker embedded-v1` repeats what they do on
a cluster with version 2.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.foreign.features import TRANSACTIONS
from tests.foreign.run import CI_CLIENTS, Report

END_TXN = {"librdkafka": (1,), "kafka_python": (3,), "java": (5,)}
"""Versions of EndTxn on a cluster with version 2."""


@pytest.mark.timeout(420)  # the first test of a client waits for all that it does
@pytest.mark.parametrize("client", CI_CLIENTS)
def test_a_foreign_client_ends_transactions_in_the_newest_version_that_it_knows(
    client: str, report: Callable[[str], Report]
) -> None:
    assert report(client).end_versions == END_TXN[client]


@pytest.mark.timeout(420)
@pytest.mark.parametrize("feature", TRANSACTIONS)
def test_java_has_transactions_of_version_1(
    feature: str, report_v1: Callable[[str], Report]
) -> None:
    outcome = report_v1("java").outcomes[feature]
    assert outcome.status == "ok", outcome.why


@pytest.mark.timeout(420)
def test_java_speaks_version_1_where_the_cluster_has_it(
    report_v1: Callable[[str], Report],
) -> None:
    assert report_v1("java").end_versions == (4,)
