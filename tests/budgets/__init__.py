"""What each record costs, counted deterministically, and compared with stored budgets.

``python -m tests.budgets`` runs the hot paths under valgrind's callgrind and compares instructions,
calls and allocations per record with ``budgets-<Python>.toml``; ``--record`` writes that file.
``python -m tests.budgets.plants`` shows that a planted call per record is noticed. Times are never
measured here.
"""
