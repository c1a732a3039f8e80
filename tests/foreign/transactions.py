"""What clients write in transactions, and what of it they must read; the same for all clients.

Clients in Python import it; `franz_go/transactions.go` has the same numbers.
"""

from __future__ import annotations

PARTITIONS = 3
ENDS = (True, False, True, True, False)
"""How the transactions of "transactions.commit" end, in order: whether they are committed."""
RECORDS = 5
"""Of each transaction in each partition."""
END = len(ENDS) * (RECORDS + 1)
"""The end of each partition: each transaction has its marker there, too."""

COPIED = 400
"""Records that "transactions.copy" copies, from as many partitions as above plus one."""
COPIED_PARTITIONS = PARTITIONS + 1
BATCH = 20
"""Records of a transaction there, at most."""


def values(number: int, partition: int) -> list[bytes]:
    """What one transaction writes to a partition."""
    return [b"%d-%d-%d" % (number, partition, n) for n in range(RECORDS)]


def expected(partition: int, level: str) -> list[bytes]:
    """What a reader of this isolation level must find in a partition."""
    return [
        value
        for number, commit in enumerate(ENDS)
        if commit or level == "read_uncommitted"
        for value in values(number, partition)
    ]


def gives_up(number: int) -> bool:
    """Whether a copier aborts its transaction of this number: one of five, not the first one."""
    return number % 5 == 3
