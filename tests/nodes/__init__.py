"""Tests of clients on three real nodes that are killed, stopped and made slow under them."""
