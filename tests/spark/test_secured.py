"""Topics behind SASL_SSL: the secret is in a file of each node, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

import kclient
from kclient.spark.source import KafkaDataSource
from kclient.testing import Cluster, ClusterSecurity, ThreadedCluster

CANARY = "canary-55aa"
RECORDS = 1000
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


async def _fill(bootstrap: str, security: kclient.Security) -> None:
    async with kclient.Producer(bootstrap, security=security) as producer:
        await producer.send_many("flights", [b"%d" % number for number in range(RECORDS)])


@pytest.mark.parametrize("password", [CANARY, CANARY + "-wrong"])
def test_a_file_on_each_node_lets_tasks_in(
    spark: Any, tmp_path: Path, password: str, capfd: pytest.CaptureFixture[str]
) -> None:
    security = ClusterSecurity({"spark": CANARY}, tls=True)
    authority = tmp_path / "ca.pem"
    authority.write_text(str(security.authority))
    file = tmp_path / "kafka.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={_MODULE} required username="spark" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
    )
    with ThreadedCluster(Cluster(brokers=1, security=security)) as cluster:
        cluster.create_topic("flights", partitions=2)
        asyncio.run(_fill(cluster.bootstrap, security.client("spark")))
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": "flights",
            "kclient.properties.file": str(file),
        }
        frame = spark.read.format("kclient").options(**options).load()
        if password == CANARY:
            assert frame.count() == RECORDS
            shown = frame._jdf.queryExecution().toString()
        else:
            with pytest.raises(Exception, match="refuses the credentials") as caught:
                frame.count()
            shown = str(caught.value)
    carried = pickle.dumps(KafkaDataSource(options).reader(frame.schema))
    out, err = capfd.readouterr()
    for text in (shown, out, err, repr(carried), repr(base64.b64encode(carried))):
        assert CANARY not in text
