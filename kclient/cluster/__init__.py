"""What the client knows about the cluster, and how it asks things of it.

``view`` holds the values, ``metadata`` the rules of when to ask what, ``updater`` the one task
that asks, ``calls`` the retry loop of single requests, ``fanout`` the same for many items at once,
``offset_lookup`` its first user, and ``core`` what producer, consumer and admin share.
"""
