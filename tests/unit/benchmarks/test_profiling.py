"""A sampling profiler's stacks, attributed to the hops of a record's journey."""

from __future__ import annotations

from benchmarks.profiling.hops import BENCH, COLLECTOR, LOOP
from benchmarks.profiling.stacks import count, module_of, place

RUN = "run_on_loop (/src/benchmarks/clients/loops.py:20)"
MAIN = "_send (/src/benchmarks/clients/kclient_produce.py:62)"
SEND = "Producer.send (/src/kclient/producer/producer.py:333)"
WRITE = "Channel.flush (/src/kclient/network/channel.py:200)"


def test_modules_are_known_from_source_generated_source_and_binary() -> None:
    assert module_of("/src/kclient/producer/sender.py") == "producer/sender"
    assert module_of("/b/build/compiled/kclient/producer/_delivery_c.py") == "producer/delivery"
    assert module_of("kclient/producer/_delivery_c.pxd") == "producer/delivery"
    path = "/v/kclient/record/_record_c.cpython-311-x86_64-linux-gnu.so"
    assert module_of(path) == "record/record"
    assert module_of("/usr/lib/libc.so.6") is None


def test_the_innermost_frame_of_ours_decides() -> None:
    assert place([RUN, MAIN, SEND, "PyDict_GetItem (/p/dict.c:1)"], True)[0] == "1"
    assert place([RUN, WRITE, "sock_send (/p/socketmodule.c:4)"], True)[0] == "10"


def test_helpers_of_the_compiler_are_passed_over() -> None:
    helper = "__Pyx_Coroutine_SendEx (/b/kclient/record/_arrow_rows_c.py:319)"
    assert place([RUN, MAIN, SEND, helper], True)[0] == "1"


def test_what_has_no_hop_is_its_callers() -> None:
    clock = "SystemClock.now (/src/kclient/clock.py:30)"
    assert place([RUN, MAIN, SEND, clock], True) == ("1", "clock: SystemClock.now")


def test_the_collector_the_loop_and_the_bench_have_rows_of_their_own() -> None:
    assert place([RUN, MAIN, SEND, "gc_collect_main (/p/gc.c:1)"], True)[0] == COLLECTOR
    assert place([RUN, MAIN], True)[0] == BENCH
    assert place([RUN, "BaseEventLoop._run_once (/p/base_events.py:1)"], True)[0] == LOOP


def test_only_the_measured_window_counts() -> None:
    lines = [
        f"main (/w.py:1);{RUN};{MAIN};{SEND} 7",
        f"main (/w.py:1);{RUN};{MAIN};_find_and_load (<frozen importlib._bootstrap>:1) 5",
        "main (/w.py:1);<module> (/src/kclient/producer/producer.py:1) 9",
        "",
    ]
    tally = count(lines, True)
    assert tally.total == 7
    assert dict(tally.hops) == {"1": 7}
