"""Maps functions of kclient to the hops of a record's journey: a table of rules, and one look-up.

The hops are those of ARCHITECTURE.md's two journeys. Rules are tried in order: a module below
``kclient`` and a function in it, both as regular expressions. A function that matches no rule is
shown as "other kclient", so that a new file is noticed.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Rule(NamedTuple):
    """A hop, and the functions that belong to it."""

    hop: str
    module: str
    function: str = ""


OUT_HOPS = {
    "1": "send: the entry, serialize, check size",
    "2": "cluster view: partitions, metadata",
    "3": "partitioner picks",
    "4": "memory budget admits or parks",
    "5": "append to the batch, make the Delivery",
    "6": "sender woken, timers, turns",
    "7": "ready batches by leader, sequences",
    "8": "batch closes: compress, CRC",
    "9": "ProduceRequest, RequestFuture",
    "10": "header, in flight, join, write",
    "11": "response frame, complete",
    "12": "per partition: done or again",
    "13": "deliveries fire and are awaited",
}
IN_HOPS = {
    "1": "assignment, positions",
    "2": "fetcher: what may be asked, fetch session",
    "3": "FetchRequest, RequestFuture, write",
    "4": "channel reads the frame",
    "5": "oldest in flight, decode of the response",
    "6": "fetch buffer",
    "7": "poll: waiting, taking turns",
    "8": "CRC, decompress, decode records",
    "9": "position moves, records handed over",
    "10": "deserializers, user's record",
}
LOOP, COLLECTOR, BENCH, OTHER = (
    "event loop",
    "garbage collector",
    "bench's own loop",
    "other kclient",
)
REST = (LOOP, COLLECTOR, BENCH, OTHER)

_NETWORK_OUT = (
    Rule("11", r"network/frames"),
    Rule("11", r"network/requests", r"RequestFuture"),
    Rule("11", r"network/\w+", r"buffer_updated|get_buffer|receive|_take|answer|complete|on_frame"),
    Rule("9", r"network/(client|node_connection|selector|requests)"),
    Rule("10", r"network/"),
    Rule("10", r"protocol/"),
)
OUT_RULES = (
    Rule(
        "13",
        r"producer/delivery",
        r"Wait|await|step|begins|result|done|settle|tell|acknowl|fire|_call|run_in",
    ),
    Rule("5", r"producer/delivery"),
    Rule("13", r"producer/flush"),
    Rule("3", r"record/murmur"),
    Rule("3", r"producer/append", r"choose"),
    Rule("3", r"producer/sticky_partitioner"),
    Rule("2", r"producer/append", r"is_here|open|close"),
    Rule("4", r"producer/append", r"_book|MemoryBudget"),
    Rule("5", r"producer/append", r"_stamp|add"),
    Rule("6", r"producer/append", r"YieldTimer|due|begin"),
    Rule("6", r"producer/send_many", r"yield|Backpressure"),
    Rule("1", r"producer/(append|record_source|producer|outgoing|send_many|_compiled)"),
    Rule("1", r"producer/(arrow_send|arrow_source|arrow_sent_rows)|record/arrow_rows"),
    Rule("4", r"producer/(waiting_records|memory)"),
    Rule("2", r"producer/admission", r"_learn|metadata|_hold|_warn|view|touch"),
    Rule("3", r"producer/admission", r"choose|_ask"),
    Rule("4", r"producer/admission", r"admit|expire|_serve"),
    Rule("1", r"producer/admission"),
    Rule("5", r"producer/(accumulator|arrow_append)", r"append|fill|add"),
    Rule("8", r"producer/(batch|batch_compression)", r"seal|squeeze|compress|encode|"),
    Rule("8", r"record/builder", r"finish|build|close|seal|encode|header"),
    Rule("8", r"record/(compression|layout)"),
    Rule("5", r"record/"),
    Rule("6", r"producer/sender", r"wake|_timer|_arm|run"),
    Rule("12", r"producer/(produce_response|batch_states)"),
    Rule("12", r"producer/partition_queue", r"acknowl|retry|reject|conclude|split"),
    Rule("9", r"producer/produce_request"),
    Rule("9", r"producer/sender", r"_ship|_supervised|_returned"),
    Rule("7", r"producer/(sender|accumulator|partition_queue|deadline_queue|idempotence)"),
    *_NETWORK_OUT,
    Rule("2", r"cluster/"),
)
IN_RULES = (
    Rule("1", r"consumer/(positions|log_truncation|engine)|cluster/"),
    Rule("9", r"consumer/subscription", r"advance|move|hand|take|settle"),
    Rule("3", r"consumer/fetch_session", r"fetch_request|_wanted|_forgotten"),
    Rule(
        "2",
        r"consumer/(fetcher|fetch_scheduler|fetch_session|subscription|stall_detection|offset_reset)",
    ),
    Rule("5", r"consumer/fetch_response|protocol/"),
    Rule("5", r"network/requests", r"RequestFuture"),
    Rule("6", r"consumer/fetch_buffer"),
    Rule("10", r"consumer/records"),
    Rule("8", r"consumer/poller", r"Columns"),
    Rule(
        "7",
        r"consumer/(poller|processed_offsets|record_iterator|consumer|arguments)|cluster/wakeups",
    ),
    Rule("8", r"consumer/completed_fetch|record/"),
    Rule("4", r"network/(frames|channel)"),
    Rule("5", r"network/connection", r"receive|frame|answer|oldest|complete"),
    Rule("3", r"network/"),
)
READS = re.compile(r"_read_ready|recv_into|data_received")


def hop_of(module: str, function: str, out: bool) -> str:
    """Return the hop of a function, ``OTHER`` if no rule matches."""
    for rule in OUT_RULES if out else IN_RULES:
        if re.search(rule.module, module) and re.search(rule.function, function):
            return rule.hop
    return OTHER
