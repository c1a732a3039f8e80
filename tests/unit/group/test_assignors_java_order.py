"""The orders of Java's collections. ``tests/assignors`` compares them with Java itself."""

from __future__ import annotations

from kclient.group.assignors.java_order import (
    HashOrder,
    java_hash,
    map_order,
    partition_hash,
    sorted_texts,
)


def test_hash_codes_are_those_of_java() -> None:
    assert java_hash("") == 0
    assert java_hash("AaAa") == java_hash("BBBB") == 2031744
    assert java_hash("polygenelubricants") == 1 << 31
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert partition_hash(java_hash("a"), 2) == 31 * 33 + 97


def test_a_map_gives_keys_by_their_buckets() -> None:
    names = ["t0", "t1", "t2", "orders", "payments", "consumer-1", "AaAa", "BBBB", "t1"]
    order = ["payments", "orders", "t0", "t1", "consumer-1", "t2", "AaAa", "BBBB"]
    assert map_order(names) == order


def test_keys_of_one_bucket_come_as_they_were_put_or_computed() -> None:
    code = java_hash("AaAa")
    put, computed = HashOrder[str](), HashOrder[str]()
    for name in ("AaAa", "BBBB", "AaBB", "AaAa"):
        put.put(name, code)
        computed.compute(name, code)
    assert put.keys() == ["AaAa", "BBBB", "AaBB"]
    assert computed.keys() == ["AaBB", "BBBB", "AaAa"]


def test_a_full_table_grows_with_the_key_that_fills_it_or_with_the_next_one_computed() -> None:
    names = [chr(16 + index) for index in range(13)]  # hash codes 16 to 28: buckets 0 to 12, or not
    low = chr(3)  # bucket 3 of either table
    put, computed = HashOrder[str](), HashOrder[str]()
    for name in [low, *names[:11]]:
        put.put(name, ord(name))
        computed.compute(name, ord(name))
    assert put.keys()[0] == computed.keys()[0] == names[0]  # 12 keys in 16 buckets
    put.put(names[11], ord(names[11]))
    computed.compute(names[11], ord(names[11]))
    assert put.keys()[0] == low
    assert computed.keys()[0] == names[0]
    computed.compute(low, ord(low))
    assert computed.keys()[0] == low


def test_a_key_that_is_removed_and_put_again_comes_last_in_its_bucket() -> None:
    order = HashOrder[str]()
    for name in ("AaAa", "BBBB"):
        order.put(name, java_hash(name))
    order.remove("AaAa", java_hash("AaAa"))
    assert (order.first(), len(order)) == ("BBBB", 1)
    order.put("AaAa", java_hash("AaAa"))
    assert order.keys() == ["BBBB", "AaAa"]


def test_texts_are_sorted_by_their_utf_16_units() -> None:
    assert sorted_texts(["\uff5e", "\U0001f600", "b"]) == ["b", "\U0001f600", "\uff5e"]
