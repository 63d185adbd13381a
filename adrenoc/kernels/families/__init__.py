"""Operator families, a folder each: rule, tile, kernels."""
