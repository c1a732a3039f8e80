"""Wire protocol tests, without a loop and without a broker."""
