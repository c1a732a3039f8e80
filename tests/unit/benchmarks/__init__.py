"""The bench's own arithmetic and registries, without a broker and without other clients."""
