"""Passes of the texture pipeline, one a file."""
