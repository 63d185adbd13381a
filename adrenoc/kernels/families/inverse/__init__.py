"""Inverses of small matrices."""
