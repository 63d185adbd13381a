"""OpenCL kernels as TIR, one op family a file."""
