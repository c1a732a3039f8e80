"""Development tools: generators whose output is checked in. Nothing here ships with the package."""
