"""One program for each client: a member of a group that tells what it owns and reads."""
