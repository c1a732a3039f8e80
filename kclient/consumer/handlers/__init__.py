"""Handlers: ``Consumer.run`` calls the application's handler for each record, many concurrently.

``run`` feeds records, watches and ends; ``workers`` call the handler. ``tracker`` knows what may
run next and what is finished, ``retries`` and ``dead_letters`` handle failures. These modules know
the consumer as ``run.EngineHost`` only.
"""

from __future__ import annotations
