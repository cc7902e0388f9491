"""The command line: a file for each command and what it alone needs."""
