"""One program for each client: a member of a group that reports what it owns and reads."""
