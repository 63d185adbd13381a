"""Kernels of the vector extension of Cortex-M55 and M85 (MVE, Helium): sixteen bytes at once."""
