"""Classic consumer groups and their offsets, as Kafka 4.3.0's group coordinator has them.

``coordinator.py`` is a broker's part: it holds one ``Shard`` per partition of
``__consumer_offsets`` that the broker leads, and the timer. Below it nothing waits:
``classic_group.py`` (the state machine and its members), ``joins.py``, ``rebalances.py``,
``offsets.py``, ``records.py``, ``deadlines.py``. ``store.py`` is the only file that knows how the
rest of the broker keeps logs and topics.
"""
