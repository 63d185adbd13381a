"""Reductions, softmax and norms."""
