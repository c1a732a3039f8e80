"""Chaos by one command: producers and consumers on three real nodes while all of it breaks.

``python -m tests.chaos`` starts the nodes with the fault proxy before them, and puts a load on
them. Leaders are killed and stopped, connections cut under Produce requests. In the end every
record is read back from the nodes and the run is judged by ``tests.history``. ``plan`` lists the
faults, ``nemesis`` injects them, ``load`` and ``readers`` are the clients, ``ledger`` and ``rows``
record their outcomes, ``judge``, ``measures`` and ``report`` evaluate the run.
"""
