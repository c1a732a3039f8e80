"""How many small mistakes in the code without input and output do the tests notice?

``python -m tests.mutants`` draws mistakes by a seed (a comparison turned, a constant changed, a
statement left out, ...), puts all of them into a copy of the project behind switches, finds out
which tests come by each, and runs those with one switch on. Prints the share that was noticed and
what was not. ``baseline.json`` is what it is held against: a lower share fails. Any edit of those
files draws other mistakes, and of 300 a share swings by 2.5 points either way.
"""
