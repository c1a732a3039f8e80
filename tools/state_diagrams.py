"""Draws docs/states.md from the transition tables of the code: ``python -m tools.state_diagrams``.

``--check`` writes nothing and fails where the page differs from the tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kclient.consumer import fetch_session, partition_state
from kclient.group import member
from kclient.network import connection
from kclient.producer import batch_states, idempotence, transactions
from kclient.testing.groups import classic_group
from kclient.testing.transactions import metadata

Table = Mapping[Any, Mapping[Any, Any]]

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "states.md"
PICTURE = re.compile(r"(?<=^```mermaid\n)stateDiagram-v2\n.*?(?=^```$)", re.M | re.S)
MEMBER = "A member of a classic group"
TRANSACTION = "A producer's transaction"
GUIDES = {DOCS / "consumers.md": MEMBER, DOCS / "transactions.md": TRANSACTION}
"""Guides, each with the picture of a machine, which is filled in here."""
MACHINES: dict[str, tuple[str, Table]] = {
    "A connection": ("kclient/network/connection.py", connection.TRANSITIONS),
    "A batch": ("kclient/producer/batch_states.py", batch_states.TRANSITIONS),
    "An idempotent producer's identity": (
        "kclient/producer/idempotence.py",
        idempotence.IDENTITY_TRANSITIONS,
    ),
    "The sequences of one partition": (
        "kclient/producer/idempotence.py",
        idempotence.SEQUENCE_TRANSITIONS,
    ),
    TRANSACTION: ("kclient/producer/transactions.py", transactions.TRANSITIONS),
    "An assigned partition": ("kclient/consumer/partition_state.py", partition_state.TRANSITIONS),
    MEMBER: ("kclient/group/member.py", member.TRANSITIONS),
    "A classic group": ("kclient/testing/groups/classic_group.py", classic_group.TRANSITIONS),
    "A fetch session": ("kclient/consumer/fetch_session.py", fetch_session.TRANSITIONS),
}
BY_PREDECESSORS: dict[str, tuple[str, Mapping[Any, Any], str]] = {
    "A transactional id, at its coordinator": (
        "kclient/testing/transactions/metadata.py",
        metadata.PREVIOUS,
        "Kafka's states and names. An id is in PREPARE_EPOCH_FENCE only while the abort of its "
        "open\ntransaction is being written.",
    ),
}
"""Machines whose table has the states from which each one is reached, and what to add to it."""


def page() -> str:
    """The whole page as text."""
    parts = [
        "# State machines",
        "",
        "Drawn from the transition tables by `python -m tools.state_diagrams`; not edited by hand.",
    ]
    for title, (file, table) in MACHINES.items():
        parts += ["", f"## {title}", "", f"[{file}](../{file})", "", "```mermaid"]
        parts += ["stateDiagram-v2", *_arrows(table), "```", "", *_states(table)]
    for title, (file, previous, note) in BY_PREDECESSORS.items():
        parts += ["", f"## {title}", "", f"[{file}](../{file})", "", "```mermaid"]
        parts += ["stateDiagram-v2", f"    [*] --> {next(iter(previous)).name}"]
        parts += [
            f"    {one.name} --> {state.name}"
            for one in previous
            for state, before in previous.items()
            if one in before
        ]
        parts += ["```", "", note]
    return "\n".join(parts) + "\n"


def guide(path: Path) -> str:
    """The text of a guide with the picture replaced by that of its table."""
    lines = ["stateDiagram-v2", *_arrows(MACHINES[GUIDES[path]][1]), ""]
    return PICTURE.sub("\n".join(lines), path.read_text(encoding="utf-8"), count=1)


def _arrows(table: Table) -> list[str]:
    lines = [f"    [*] --> {next(iter(table)).name}"]
    for state, events in table.items():
        lines += [f"    {state.name} --> {to.name}: {event.name}" for event, to in events.items()]
        if set(events.values()) <= {state}:
            lines.append(f"    {state.name} --> [*]")
    return lines


def _states(table: Table) -> list[str]:
    return ["| state | |", "|---|---|", *(f"| {state.name} | {state.value} |" for state in table)]


def main() -> int:
    """Write the page, or compare it."""
    pages = {PAGE: page(), **{path: guide(path) for path in GUIDES}}
    if "--check" not in sys.argv[1:]:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
        return 0
    old = [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    for path in old:
        print(f"docs/{path.name} is not what the tables say: run python -m tools.state_diagrams")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
