"""Tests of clients against a real broker of their own, which they may stop and hurt."""
