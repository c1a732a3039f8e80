"""Wire protocol, without a loop and without a broker."""
