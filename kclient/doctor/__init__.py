"""What is wrong with a connection, step by step: the probes and diagnosis of ``kclient doctor``.

``examination`` visits addresses by ``probe`` and reports a ``findings.Step`` for each step; what
failed is named by ``causes``. It speaks with the client's own TLS context, handshake and SASL
mechanisms, but on connections of its own, one per address and without retries: a client reports
all attempts as one error. ``kclient.cli`` prints the steps.
"""
