"""The tests of the test support itself."""
