"""Transactions, as in the transaction coordinator of Kafka 4.3.0 (KIP-98, KIP-360, KIP-890).

``coordinator.py`` is the coordinator of a broker: a shard per partition of ``__transaction_state``
that the broker leads. ``metadata.py`` has the states and the rules, which never wait,
``records.py`` their form in the log, ``markers.py`` what ends a transaction in its partitions, and
``verification.py`` what other brokers ask a coordinator about a partition before they write to it.
"""
