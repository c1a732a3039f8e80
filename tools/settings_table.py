"""Writes docs/settings.md from the settings classes: ``python -m tools.settings_table``.

``--check`` writes nothing and fails where the page is not what the classes say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kclient.config import (
    AdminConfig,
    ConsumerConfig,
    GroupMemberConfig,
    ProducerConfig,
    describe,
)
from kclient.settings import Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
CLIENTS: dict[str, type[Settings]] = {
    "Producer": ProducerConfig,
    "Consumer": ConsumerConfig,
    "GroupMember": GroupMemberConfig,
    "Admin": AdminConfig,
}


def page() -> str:
    """The whole page as text."""
    common = {row[0] for row in describe(AdminConfig)}
    parts = [
        "# Settings",
        "",
        "Durations are seconds, sizes are bytes. Made from the code by",
        "`python -m tools.settings_table`; not edited by hand.",
        "",
        "## All clients",
        *_table(AdminConfig, lambda name: True),
    ]
    for client, config in CLIENTS.items():
        if client != "Admin":
            parts += ["", f"## {client}", *_table(config, lambda name: name not in common)]
    return "\n".join(parts) + "\n"


def _table(config: type[Settings], wanted: Callable[[str], bool]) -> list[str]:
    lines = [
        "",
        "| setting | default | allowed | what it is | Java's name |",
        "|---|---|---|---|---|",
    ]
    for name, default, allowed, doc, kafka in describe(config):
        if wanted(name):
            java = f"`{kafka}`" if kafka else ""
            lines.append(f"| `{name}` | `{_shown(default)}` | {allowed} | {doc} | {java} |")
    return lines


def _shown(default: object) -> str:
    plain = (str, int, float, bool, tuple, type(None))
    return repr(default) if isinstance(default, plain) else "plaintext"


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") != page():
        print("docs/settings.md is not what the classes say: run python -m tools.settings_table")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
