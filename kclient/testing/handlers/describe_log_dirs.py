"""DescribeLogDirs (35): the directory of a broker's logs, and how large they are."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kclient.testing.call import Call

TOTAL_BYTES = 1 << 40
"""What the disk of a broker is said to hold; it has none."""


def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the logs that are asked for, or all of them; others are left out."""
    code = call.error_for()
    if code is not None:
        return DescribeLogDirsResponse(error_code=code)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, DescribeLogDirsTopic] = {}
    used = 0
    for local in call.broker.replicas:
        call.broker.hosted.tidy(local)
        name, index = local.facts.topic, local.facts.index
        used += local.log.size_bytes
        if wanted is not None and (name, index) not in wanted:
            continue
        shown = topics.setdefault(name, DescribeLogDirsTopic(name))
        lag = max(local.log.high_watermark - local.log.end_offset, 0)
        shown.partitions.append(DescribeLogDirsPartition(index, local.log.size_bytes, lag, False))
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                ErrorCode.NONE,
                call.image.config.log_dirs[0],
                list(topics.values()),
                TOTAL_BYTES,
                TOTAL_BYTES - used,
                False,
            )
        ]
    )
