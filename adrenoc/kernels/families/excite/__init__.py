"""A squeeze-and-excite block: what channels are multiplied by, of the mean of an image."""
