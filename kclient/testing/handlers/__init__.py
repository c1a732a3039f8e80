"""What brokers answer: one file per subject, one function per API; ``dispatch`` has the table.

A function gets call and request, and returns the response, a ``Deferred`` where it has to wait, or
None where no answer is wanted.
"""
