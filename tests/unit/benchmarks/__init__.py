"""Arithmetic and registries of the bench, without a broker and without other clients."""
