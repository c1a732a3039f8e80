"""What pip makes of the project: with a C compiler, without one, and on request without one."""
