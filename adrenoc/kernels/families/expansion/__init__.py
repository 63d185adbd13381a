"""A depthwise convolution that computes the 1x1 one before it."""
