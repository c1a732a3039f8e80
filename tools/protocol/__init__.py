"""Writes ``kclient/protocol/messages`` and the error table out of Apache Kafka's published jars.

Run ``python -m tools.protocol`` to write the files, ``--check`` to compare them with what is
checked in. The steps: ``jars`` finds the jars, ``definitions`` reads the JSON in them,
``merge`` unites two releases, ``selection`` leaves out what only brokers use, ``layout`` names
Python's modules and classes, the ``emit_*`` modules write source text, ``output`` writes or
compares. ``errors`` does the error table, and ``configs`` the tables of
``kclient/testing/config_tables``.
"""
