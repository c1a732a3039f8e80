"""Classic consumer groups and their offsets, as in the group coordinator of Kafka 4.3.0.

``coordinator.py`` is the coordinator of a broker: it holds one ``Shard`` per partition of
``__consumer_offsets`` that the broker leads. The other files never wait: ``classic_group.py`` (the
state machine and its members), ``joins.py``, ``rebalances.py``, ``offsets.py`` and ``records.py``.
"""
