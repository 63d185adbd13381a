"""The kit that kernels are written with: builder, access to tensors, expressions, epilogues."""
