"""The group package: membership in a group, whatever its members assign among themselves.

``GroupMember`` is its public entry point, for worker pools and the like; ``consumer`` builds on
``Membership``, ``Coordinator`` and ``GroupOffsets``. It knows nothing of records.
"""

from __future__ import annotations
