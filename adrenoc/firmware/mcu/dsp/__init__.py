"""Kernels of the DSP extension: Cortex-M4, M7, M33."""
