"""The command line: parse, call one thing, show what it gave."""
