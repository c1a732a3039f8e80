"""Handlers: ``Consumer.run`` calls the user's handler for each record, many at the same time.

``door`` is what users call; ``runner`` feeds, watches and ends; ``workers`` call the handler. What
may run next is in ``schedule``, what is finished in ``tracker``, what becomes of a failure in
``retries`` and ``dead_letters``. The consumer behind it all is known as ``host.RunHost`` only.
"""

from __future__ import annotations
