"""The group room: membership in a group, whatever its members share out.

``GroupMember`` is its public door, for worker pools and the like; ``consumer`` builds on
``Membership``, ``Coordinator`` and ``GroupOffsets``. It knows nothing of records.
"""

from __future__ import annotations
