"""One program per foreign client: each plays its features and reports what it saw."""
