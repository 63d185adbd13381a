"""This machine: its memory, and the programs that are run on it."""
