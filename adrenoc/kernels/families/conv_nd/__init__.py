"""Which family computes a convolution."""
