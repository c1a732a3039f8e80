"""Whole clients and the embedded cluster on virtual time and a network in memory.

Every async test in here runs on a ``VirtualLoop`` of seed 0; for other seeds a plain test calls
``run_virtually``.
"""
