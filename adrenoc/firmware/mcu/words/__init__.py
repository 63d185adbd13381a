"""Kernels of activations of int16."""
