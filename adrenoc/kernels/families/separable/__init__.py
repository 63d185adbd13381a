"""A 1x1 convolution that computes the depthwise one before it."""
