"""One program per foreign client: each plays the features that it has and tells what it saw."""
