"""Scores, softmax and the mix of values as one operator."""
