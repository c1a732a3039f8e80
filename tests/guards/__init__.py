"""Does each guard in the client have a test that notices when it is gone?

``*.toml`` in this folder list guards: a piece of ``kclient`` that prevents a known mistake, its
text without it, and the tests that must fail then. ``python -m tests.guards`` removes them one at
a time in a copy of the project and runs those tests. Nothing in the working tree is changed.
"""
