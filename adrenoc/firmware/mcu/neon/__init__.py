"""Kernels for 64-bit Arm application processors: products of bytes by SMMLA, SDOT and SMLAL."""
