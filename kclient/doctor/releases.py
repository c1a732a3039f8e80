"""The release of a broker, guessed from the versions that it supports. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping

from kclient.protocol.api_versions import VersionRange

_FIRST_IN = (
    ("4.3", 35, 5),
    ("4.2", 2, 11),
    ("4.1", 0, 13),
    ("4.0", 0, 12),
    ("3.9", 1, 17),
    ("3.8", 10, 5),
    ("3.7", 1, 16),
    ("3.6", 24, 4),
    ("3.5", 1, 15),
    ("3.3 or 3.4", 35, 4),
    ("3.2", 11, 9),
    ("3.1", 1, 13),
    ("3.0", 10, 4),
    ("2.8", 60, 0),
    ("2.7", 57, 0),
    ("2.6", 16, 4),
    ("2.5", 11, 7),
    ("2.4", 0, 8),
    ("2.3", 11, 5),
    ("2.2", 11, 4),
    ("2.1", 0, 7),
    ("2.0", 0, 6),
    ("1.1", 42, 0),
    ("1.0", 37, 0),
)
"""Releases, newest first, each with an API and the version of it that came with that release."""


def release_of(versions: Mapping[int, VersionRange]) -> str:
    """The release that first had the newest of these versions."""
    for release, api_key, version in _FIRST_IN:
        found = versions.get(api_key)
        if found is not None and found.max >= version:
            return release
    return "before 1.0"
