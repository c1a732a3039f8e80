"""Request handlers: one file per subject, one function per API; ``dispatch`` has the table.

A function gets call and request, and returns the response, a ``PendingResult`` if it has to wait,
or None if the client expects no response.
"""
