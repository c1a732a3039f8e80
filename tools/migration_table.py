"""Writes the settings of docs/migrating.md: ``python -m tools.migration_table``.

They come from ``kclient.foreign_settings``, by which errors about unknown names go, too.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kclient.config import ConsumerConfig, GroupMemberConfig, ProducerConfig
from kclient.foreign_settings import TABLE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "migrating.md"
BEGIN = "<!-- Made by python -m tools.migration_table -->\n"
END = "<!-- end -->\n"


def page() -> str:
    """Return the whole page, with the tables regenerated."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{_tables()}\n{END}{rest.partition(END)[2]}"


def _tables() -> str:
    defaults = _defaults()
    ours = ["| setting | kclient | default | |", "|---|---|---|---|"]
    none = ["| setting | why there is none |", "|---|---|"]
    for (setting, note), names in _grouped().items():
        theirs = ", ".join(f"`{name}`" for name in names)
        if setting is None:
            none.append(f"| {theirs} | {note} |")
        else:
            ours.append(f"| {theirs} | `{setting}` | {defaults.get(setting, '')} | {note} |")
    return "\n".join([*ours, "", "Without a counterpart:", "", *none]) + "\n"


def _defaults() -> dict[str, str]:
    """kclient's by name; where producer and consumer differ, first the producer's."""
    defaults: dict[str, str] = {}
    for config in (ProducerConfig, ConsumerConfig, GroupMemberConfig):
        for field in dataclasses.fields(config):
            name, default = field.name, field.default
            shown = f"`{default!r}`"
            if not isinstance(default, str | int | float | tuple | None):
                continue
            if name not in defaults:
                defaults[name] = shown
            elif defaults[name] != shown:
                defaults[name] += f", {shown}"
    return defaults


def _grouped() -> dict[tuple[str | None, str], list[str]]:
    """The names of other clients by what they are here."""
    groups: dict[tuple[str | None, str], list[str]] = {}
    for name, row in TABLE.items():
        groups.setdefault((row.ours, row.note), []).append(name)
    return groups


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
