"""Which tensors stay in float32, and which lie as bytes."""
