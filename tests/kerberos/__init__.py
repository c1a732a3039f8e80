"""GSSAPI against a KDC and a real broker of its own; ``--broker`` names the release.

They need ``kclient[gssapi]`` and what `tests.support.kdc` names.
"""
