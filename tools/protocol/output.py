"""Writes generated files, or compares them with what is checked in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The top of the source tree."""

OWNED_DIRECTORIES = ("kclient/protocol/messages", "kclient/testing/config_tables")
"""Here every file is generated: one that the generator did not write is stale."""


def stale_files(files: Mapping[str, str]) -> list[Path]:
    """Files in the generated directories that are not among ``files`` (relative path -> text)."""
    return [
        path
        for directory in OWNED_DIRECTORIES
        for path in sorted((ROOT / directory).glob("*.py"))
        if str(path.relative_to(ROOT)) not in files
    ]


def write(files: Mapping[str, str]) -> int:
    """Write what differs and delete what is stale; returns how many files changed."""
    changed = 0
    for name, text in files.items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        changed += 1
    for path in stale_files(files):
        path.unlink()
        changed += 1
    return changed


def differences(files: Mapping[str, str]) -> list[str]:
    """One line for each file that ``write`` would touch."""
    found = [f"{path.relative_to(ROOT)} is not generated any more" for path in stale_files(files)]
    for name, text in files.items():
        path = ROOT / name
        if not path.exists():
            found.append(f"{name} is missing")
        elif path.read_text(encoding="utf-8") != text:
            found.append(f"{name} differs")
    return found
