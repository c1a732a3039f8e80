"""Exactly once through kill -9: a process that reads, handles and writes, killed again and again.

``python -m tests.exactly_once`` runs it; ``worker`` is the process that is killed, ``readers`` are
the clients, of others too, that must find each record once.
"""
