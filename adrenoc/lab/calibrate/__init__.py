"""Measures a device with micro-kernels, and writes what it learned as a target file."""
