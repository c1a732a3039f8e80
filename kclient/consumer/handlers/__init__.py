"""Handlers: ``Consumer.run`` calls the user's handler for each record, many at the same time.

``run`` feeds, watches and ends; ``workers`` call the handler. What may run next and what is
finished is in ``tracker``, what becomes of a failure in ``retries`` and ``dead_letters``. The
consumer behind it all is known as ``run.EngineHost`` only.
"""

from __future__ import annotations
