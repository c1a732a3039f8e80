"""Nodes and the address book: removed and moved nodes, and separate bootstrap nodes."""

from __future__ import annotations

from kclient.network.nodes import AddressBook, ConnectionKey, Lane, Node


def new_book() -> AddressBook:
    return AddressBook([("one", 9092), ("two", 9093)])


def test_bootstrap_nodes_have_negative_ids_in_order() -> None:
    book = new_book()
    assert list(book.bootstrap) == [-1, -2]
    assert book.get(-2) == Node(-2, "two", 9093)
    assert book.get(-3) is None


def test_replace_returns_removed_and_moved_nodes() -> None:
    book = new_book()
    assert book.replace([Node(1, "a", 1), Node(2, "b", 1), Node(3, "c", 1)]) == (set(), set())
    gone, moved = book.replace([Node(2, "b", 2), Node(3, "c", 1), Node(4, "d", 1)])
    assert gone == {1}
    assert moved == {2}
    assert sorted(book.nodes) == [2, 3, 4]


def test_another_rack_is_no_move() -> None:
    book = new_book()
    book.replace([Node(1, "a", 1, "east")])
    assert book.replace([Node(1, "a", 1, "west")]) == (set(), set())
    assert book.get(1) == Node(1, "a", 1, "west")


def test_bootstrap_nodes_cannot_be_replaced() -> None:
    book = new_book()
    book.replace([Node(-1, "evil", 1)])
    assert book.get(-1) == Node(-1, "one", 9092)
    assert not book.nodes


def test_ipv6_is_written_in_brackets() -> None:
    assert Node(1, "::1", 9092).address == "[::1]:9092"
    assert Node(1, "kafka", 9092).address == "kafka:9092"


def test_a_key_is_a_plain_tuple_to_a_dict() -> None:
    assert {ConnectionKey(1, Lane.FETCH): "found"}[1, Lane.FETCH] == "found"
