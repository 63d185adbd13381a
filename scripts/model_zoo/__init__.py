"""Real network architectures with seeded weights, written with the onnx helper alone."""
